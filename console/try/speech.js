// The panel of POST /audio/speech: one text by several engines and voices, side by side.
import { h, replace, visible, write } from "../dom.js";
import { duration } from "../format.js";
import { muted, pairs } from "../parts.js";
import { Mistake, present } from "./form.js";
import { facts, failure, priced, streamed } from "./reply.js";
import { player, sized } from "./sound.js";
import { list, model, models } from "./sources.js";

const TYPES = { wav: "audio/wav", flac: "audio/flac", mp3: "audio/mpeg", ogg: "audio/ogg", opus: "audio/ogg", aac: "audio/aac" };

export const speech = {
  name: "speech",
  title: "Speech",
  about: "Speaks a text. Choose several engines to compare them; each may speak with its own voice.",
  verb: "Speak",
  fields: [
    { name: "input", label: "Text", kind: "text", rows: 2, value: "Good morning. The train to Paris leaves at nine.", wide: true },
    { name: "language", label: "Language; empty to detect it", kind: "line", value: "en" },
    { name: "response_format", label: "Format", kind: "choice", value: "wav", options: () => Object.keys(TYPES).map((format) => [format, format]) },
    { name: "speed", label: "Speed, where the engine has it", kind: "number", min: 0.5, max: 2, step: 0.1, more: true },
    { name: "instructions", label: "How to speak, where the engine follows it", kind: "line", more: true },
  ],

  /** Voices are a part of the form that depends on the lists of the server: a row for each engine. */
  prepare(desk) {
    desk.voices = h("fieldset", { class: "voices" }, h("legend", {}, "Engines and voices"));
    desk.form.element.append(desk.voices);
    fillVoices(desk.voices);
  },

  request(values, desk) {
    return described(values, chosen(desk.voices)[0]);
  },

  async run(desk, values) {
    const speakers = chosen(desk.voices);
    const places = speakers.map((speaker) => h("article", { class: "card spoken" }, h("h3", {}, nameOf(speaker)), muted("waiting …")));
    replace(desk.output, h("div", { class: "side-by-side" }, places));
    const spoken = await Promise.all(speakers.map((speaker, index) => speak(desk, described(values, speaker), speaker, places[index])));
    desk.signal.throwIfAborted();
    return `${spoken.filter(Boolean).length} of ${speakers.length} spoken.`;
  },
};

async function fillVoices(place) {
  try {
    const [engines, { data }] = await Promise.all([models("tts"), list("v1/audio/voices")]);
    const voicesOf = ({ id }) => data.filter((voice) => voice.model === id && voice.selectable && voice.available);
    place.append(...engines.map((engine, index) => voiceRow(engine, voicesOf(engine), index === 0)));
    place.dispatchEvent(new Event("input", { bubbles: true }));
  } catch (error) {
    place.append(muted(`The voices could not be read: ${error.message}`));
  }
}

function voiceRow({ id }, voices, isChosen) {
  const label = ({ label: name, gender, primary_language: language }) => visible(`${name} (${gender}, ${language})`);
  const options = voices.map((voice) => h("option", { value: voice.slug }, label(voice)));
  const check = h("input", { type: "checkbox", id: `voice-${id}`, checked: isChosen, value: id });
  const menu = h("select", { "aria-label": `Voice of ${id}` }, h("option", { value: "" }, "its default voice"), options);
  return h("div", { class: "row voice" }, h("span", { class: "switch" }, check, h("label", { for: check.id }, visible(id))), menu);
}

function chosen(place) {
  const rows = [...place.querySelectorAll(".voice")].map((row) => [row.querySelector("input"), row.querySelector("select")]);
  const speakers = rows.filter(([{ checked }]) => checked).map(([engine, voice]) => ({ model: engine.value, voice: voice.value || undefined }));
  if (!speakers.length) throw new Mistake("Choose at least one engine.");
  return speakers;
}

const nameOf = ({ model: id, voice }) => visible(voice ? `${id}, ${voice}` : id);

function described(values, speaker) {
  if (!values.input) throw new Mistake("Text: write something to speak.");
  return { path: "v1/audio/speech", json: present({ ...values, ...speaker }), saves: `speech.${values.response_format}` };
}

/** Fills `place` with the sound of one speaker, or with what went wrong. Gives whether it spoke. */
async function speak(desk, request, speaker, place) {
  const fill = (...children) => replace(place, place.firstChild, ...children);
  const startedMs = performance.now();
  try {
    const json = { ...request.json, stream_format: "sse" };
    const sound = await collected({ ...request, json }, desk.signal, (text) => write(place.lastChild, text));
    const blob = new Blob([sized(sound.bytes)], { type: TYPES[request.json.response_format] });
    const { element, seconds } = await player(blob, nameOf(speaker));
    fill(element, told(sound, startedMs, seconds, await model(speaker.model)), facts(sound.reply));
    return true;
  } catch (error) {
    const again = () => desk.run(async () => ((await speak(desk, request, speaker, place)) ? "Spoken." : "Not spoken."));
    fill(error.name === "AbortError" ? "stopped" : failure(error, again));
    return false;
  }
}

async function collected(request, signal, tell) {
  const pieces = [];
  let reply, firstMs, last;
  for await (last of streamed(request, signal, tell, (came) => (reply = came))) {
    if (last.audio) pieces.push(Uint8Array.from(atob(last.audio), (char) => char.charCodeAt(0)));
    firstMs ??= performance.now();
  }
  const bytes = new Uint8Array(await new Blob(pieces).arrayBuffer());
  return { reply, bytes, usage: last?.usage ?? {}, firstMs, doneMs: performance.now() };
}

function told({ reply, usage, firstMs, doneMs }, startedMs, seconds, entry) {
  const wholeMs = doneMs - startedMs;
  return pairs([
    ["spoken by", visible(reply.headers.get("x-service-model-served") ?? "")],
    ["first sound after", duration(firstMs - startedMs)],
    ["whole after", duration(wholeMs)],
    ["length", seconds && `${seconds.toFixed(1)} s, made at ${((seconds * 1000) / wholeMs).toFixed(1)} times its speed`],
    ["cost", priced(entry, { characters: usage.characters, audio_seconds: usage.seconds })],
  ]);
}
