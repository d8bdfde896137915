// The panel of POST /audio/transcriptions: a file or a recording becomes words, which light up as it plays.
import { h, replace, visible } from "../dom.js";
import { count } from "../format.js";
import { opened } from "./code.js";
import { round, table } from "./drawing.js";
import { Mistake, present } from "./form.js";
import { waiting } from "./panel.js";
import { facts, priced, send } from "./reply.js";
import { player, recorder } from "./sound.js";
import { model, modelField } from "./sources.js";
import { eventsOf } from "./stream.js";
import { ticketTexts } from "./ticket.js";
import { DIRECT_BYTES, upload } from "./upload.js";

export const transcription = {
  name: "transcription",
  title: "Transcription",
  about: "Writes down a file or what you record. Files of more than 4.5 MiB go through an upload ticket by themselves.",
  verb: "Transcribe",
  fields: [
    modelField("stt"),
    { name: "file", label: "Recording", kind: "file", accept: "audio/*,.webm,.ogg,.opus,.mp3,.wav,.m4a,.aac,.flac" },
    { name: "language", label: "Language, two letters; empty to detect it", kind: "line" },
    { name: "ticket", label: "Send it under a ticket, whatever its size", kind: "switch" },
    { name: "prompt", label: "A hint at spelling and style", kind: "line", more: true },
    { name: "context_bias", label: "Names and terms, one a line", kind: "text", as: "lines", more: true },
    { name: "format_text", label: "Add paragraphs and lists", kind: "switch", more: true },
  ],

  /** What was recorded stands in for the file until another file is chosen. */
  prepare(desk) {
    const note = h("span", { class: "muted" });
    const take = (file) => {
      desk.recording = file;
      replace(note, file ? `${visible(file.name)}, ${count(Math.ceil(file.size / 1024))} KiB` : "");
      desk.code.refresh();
    };
    desk.form.control("file").addEventListener("change", ({ target }) => take(target.files[0] ?? null));
    desk.form.control("model").addEventListener("input", async ({ target }) => (desk.model = await model(target.value)));
    desk.form.element.append(h("div", { class: "row" }, recorder(take), note));
  },

  request(values, desk) {
    const file = desk.recording;
    if (!file) throw new Mistake("Choose a file, or record something.");
    const json = fields(values, desk.model);
    if (isLarge(values, file)) return { path: "v1/audio/transcriptions", json, texts: ticketTexts(file, json) };
    const { timestamp_granularities: granularities = [], context_bias: terms = [], ...others } = json;
    const pairs = [
      ...Object.entries(others).map(([name, value]) => [name, String(value)]),
      ...granularities.map((name) => ["timestamp_granularities[]", name]),
      ...terms.map((term) => ["context_bias", term]),
    ];
    const takes = ["file", "model", "language", "response_format", "timestamp_granularities", "prompt"];
    return { path: "v1/audio/transcriptions", pairs, file, sdk: { call: "audio.transcriptions.create", takes, args: { file: opened(file), ...json }, tail: ")\nprint(reply.text)" } };
  },

  async run(desk, values) {
    const file = desk.recording;
    const sent = await readied(desk, values, this.request(values, desk), file);
    const text = h("p", { class: "transcript", dir: "auto" });
    const { element, audio } = await player(file, visible(file.name));
    replace(desk.output, element, text);
    const reply = await send(sent, desk.signal);
    desk.replies.append(facts(reply));
    const done = await heard(desk, reply, text);
    light(done, text, audio, desk.output);
    const cost = priced(await model(values.model), { audio_seconds: done.usage?.seconds });
    return `Transcribed: ${count(done.text.split(/\s+/).filter(Boolean).length)} words${cost ? `, ${cost}` : ""}.`;
  },
};

const isLarge = ({ ticket }, file) => ticket || file.size > DIRECT_BYTES;

// Times of words where the model has them, else of segments.
function fields({ model: id, language, prompt, context_bias, format_text }, entry) {
  const { timestamp_granularities: known = [], context_terms: terms = 0 } = entry?.limits ?? {};
  const granularity = ["word", "segment"].find((name) => known.includes(name));
  return present({
    model: id, language, prompt, response_format: "verbose_json",
    timestamp_granularities: granularity ? [granularity] : undefined,
    context_bias: terms > 0 ? context_bias : undefined,
    format_text: format_text || undefined,
  });
}

// The request as the page sends it: as a stream, and its file uploaded where it is large.
async function readied(desk, values, request, file) {
  const headers = { "X-Service-Progress": "1" };
  if (!isLarge(values, file)) return { ...request, headers, pairs: [...request.pairs, ["stream", "true"]] };
  const progress = h("progress", { max: file.size, value: 0, "aria-label": "Uploaded" });
  const words = h("span", { class: "muted" });
  replace(desk.output, h("div", { class: "row" }, progress, words));
  const onProgress = (loaded) => {
    progress.value = loaded;
    words.textContent = `${count(Math.round(loaded / 1024))} of ${count(Math.round(file.size / 1024))} KiB uploaded`;
  };
  const id = await upload(file, values.model, { onProgress, signal: desk.signal });
  desk.say("Uploaded; transcribing …");
  return { path: request.path, headers, json: { ...request.json, upload_id: id, stream: true } };
}

async function heard(desk, reply, text) {
  let done = { text: "" };
  for await (const { event, data } of eventsOf(reply)) {
    if (event === "queue_status") desk.tell(waiting(data));
    if (data.type === "transcript.text.delta") text.append(data.delta);
    if (data.type === "transcript.text.done") done = data;
  }
  return done;
}

// A word is lit from its beginning to the beginning of the next one, so that none blinks between two.
function light(done, text, audio, output) {
  const parts = done.words ?? done.segments ?? [];
  if (!parts.length) return replace(text, done.text || "No speech was heard.");
  const spans = parts.map(({ word, text: segment, start }) =>
    h("span", { class: "word", onClick: () => (audio.currentTime = start) }, (word ?? segment).trim()));
  replace(text, spans.flatMap((span) => [span, " "]));
  let lit = null;
  const follow = () => {
    const index = parts.findLastIndex(({ start }) => start <= audio.currentTime);
    const isOver = index === parts.length - 1 && audio.currentTime > parts.at(-1).end;
    const next = isOver ? null : (spans[index] ?? null);
    if (next === lit) return;
    lit?.classList.remove("lit");
    next?.classList.add("lit");
    lit = next;
  };
  audio.addEventListener("timeupdate", follow);
  audio.addEventListener("seeked", follow);
  audio.addEventListener("play", () => frames(audio, follow));
  const rows = parts.map(({ word, text: segment, start, end }) => [visible((word ?? segment).trim()), round(start, 2), round(end, 2)]);
  const whole = done.text_raw ? [h("h3", {}, "With structure"), h("p", { class: "transcript" }, done.text)] : [];
  output.append(...whole, h("details", {}, h("summary", {}, "Times as a table"), table("Times in seconds", ["words", "from", "to"], rows)));
}

// `timeupdate` comes four times a second: too seldom for words.
function frames(audio, follow) {
  follow();
  if (!audio.paused && audio.isConnected) requestAnimationFrame(() => frames(audio, follow));
}
