// The panel of POST /audio/transcriptions: a file or a recording becomes words, which light up as it plays.
import { h, replace, visible } from "../dom.js";
import { plural } from "../format.js";
import { button, folded, joined, round, row, table } from "../parts.js";
import { ticketTexts } from "./code.js";
import { Mistake, present } from "./form.js";
import { listen, recorder } from "./microphone.js";
import { facts, priced, streamed } from "./reply.js";
import { player } from "./sound.js";
import { model, modelField } from "./sources.js";
import { DIRECT_BYTES, orderOf, upload } from "./upload.js";

export const transcription = {
  name: "transcription",
  title: "Transcription",
  about: "Writes down a file, what you record, or what you speak while you speak. More than 4.5 MiB go through an upload ticket by themselves.",
  verb: "Transcribe",
  fields: [
    modelField("stt"),
    { name: "file", label: "Recording", kind: "file", accept: "audio/*,.webm,.ogg,.opus,.mp3,.wav,.m4a,.aac,.flac" },
    { name: "language", label: "Language; empty to detect it", kind: "line" },
    { name: "ticket", label: "Send it under a ticket, whatever its size", kind: "switch" },
    { name: "prompt", label: "A hint at spelling and style", kind: "line", more: true },
    { name: "format_text", label: "Add paragraphs and lists", kind: "switch", more: true },
  ],

  /** What was recorded stands in for the file until a file is chosen. */
  prepare(desk) {
    const note = h("span", { class: "muted" });
    const take = (file) => {
      desk.recording = file;
      replace(note, file ? `${visible(file.name)}, ${Math.ceil(file.size / 1024)} KiB` : "");
      desk.code.refresh();
    };
    desk.form.control("file").addEventListener("change", ({ target }) => take(target.files[0]));
    desk.form.control("model").addEventListener("input", async ({ target }) => (desk.model = await model(target.value)));
    desk.form.element.append(row(recorder(take), note));
    desk.runButton.after(button("Speak", () => desk.run((values) => listen(desk, values))));
  },

  request(values, desk) {
    const file = desk.recording;
    if (!file) throw new Mistake("Choose a file, or record something.");
    const request = { path: "v1/audio/transcriptions", json: fields(values, desk.model) };
    if (isLarge(values, file)) return { ...request, texts: ticketTexts(file, orderOf(file, values.model), request) };
    const pairs = Object.entries(request.json).map(([name, value]) => [Array.isArray(value) ? `${name}[]` : name, String(value)]);
    return { path: request.path, pairs, file };
  },

  async run(desk, values) {
    const file = desk.recording;
    const sent = await readied(desk, values, this.request(values, desk), file);
    const text = h("p", { class: "transcript", dir: "auto" });
    const { element, audio } = await player(file, visible(file.name));
    replace(desk.output, element, text);
    const done = await written(desk, sent, text);
    light(done, text, audio, desk.output);
    const words = plural(done.text.split(/\s+/).filter(Boolean).length, "word");
    return `Transcribed: ${joined(words, priced(await model(values.model), { audio_seconds: done.usage?.seconds }))}.`;
  },
};

const isLarge = ({ ticket }, file) => ticket || file.size > DIRECT_BYTES;

// Times of words where the model has them, else of segments.
function fields({ model: id, language, prompt, format_text }, entry) {
  const known = entry?.limits.timestamp_granularities ?? [];
  const granularities = ["word", "segment"].filter((name) => known.includes(name)).slice(0, 1);
  return present({ model: id, language, prompt, format_text, response_format: "verbose_json", timestamp_granularities: granularities });
}

// The request as the page sends it: as a stream, and its file uploaded where it is large.
async function readied(desk, values, request, file) {
  if (!isLarge(values, file)) return { ...request, pairs: [...request.pairs, ["stream", "true"]] };
  const progress = h("progress", { max: file.size, value: 0, "aria-label": "Uploaded" });
  replace(desk.output, progress);
  const onProgress = (loaded) => {
    progress.value = loaded;
    desk.tell(`${Math.round((loaded / file.size) * 100)} % of ${Math.ceil(file.size / 1024)} KiB uploaded`);
  };
  const id = await upload(file, values.model, { onProgress, signal: desk.signal });
  desk.tell("");
  desk.say("Uploaded; transcribing …");
  return { path: request.path, json: { ...request.json, upload_id: id, stream: true } };
}

// Pieces of the text, and at the end all that is known.
async function written(desk, request, text) {
  let last = {};
  for await (last of streamed(request, desk.signal, (words) => desk.tell(words), (reply) => desk.replies.append(facts(reply)))) {
    text.append(last.delta ?? "");
  }
  return { text: "", ...last };
}

function light(done, text, audio, output) {
  const parts = (done.words ?? done.segments ?? []).map(({ word, text: segment, ...times }) => ({ ...times, text: (word ?? segment).trim() }));
  if (!parts.length) return replace(text, done.text || "No speech was heard.");
  const spans = parts.map(({ text: words, start }) => h("span", { class: "word", onClick: () => (audio.currentTime = start) }, words));
  replace(text, spans.flatMap((span) => [span, " "]));
  follow(audio, parts, spans);
  const rows = parts.map(({ text: words, start, end }) => [visible(words), round(start, 2), round(end, 2)]);
  const structured = done.text_raw && h("p", { class: "transcript card", dir: "auto" }, done.text);
  output.append(...[structured, folded("Times as a table", table("Times in seconds", ["words", "start", "end"], rows))].filter(Boolean));
}

// A word is lit from its beginning to the beginning of the next one, so that none blinks between two. While it plays this
// looks at every frame: `timeupdate` comes four times a second, too seldom for words.
function follow(audio, parts, spans) {
  let lit = null;
  const update = () => {
    const next = audio.currentTime > parts.at(-1).end ? null : (spans[parts.findLastIndex(({ start }) => start <= audio.currentTime)] ?? null);
    if (next !== lit) {
      lit?.classList.remove("lit");
      next?.classList.add("lit");
      lit = next;
    }
    if (!audio.paused && audio.isConnected) requestAnimationFrame(update);
  };
  for (const event of ["play", "seeked", "ended"]) audio.addEventListener(event, update);
}
