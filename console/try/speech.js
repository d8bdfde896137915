// The panel of POST /audio/speech: one text by several engines and voices, side by side.
import { h, replace, visible } from "../dom.js";
import { duration } from "../format.js";
import { Mistake, present } from "./form.js";
import { waiting } from "./panel.js";
import { facts, failure, pairs, priced, send } from "./reply.js";
import { player, sized } from "./sound.js";
import { languageOptions, list, models } from "./sources.js";
import { eventsOf } from "./stream.js";

const FORMATS = ["wav", "flac", "mp3", "ogg", "opus", "aac"];
const TYPES = { mp3: "audio/mpeg", opus: "audio/ogg", m4a: "audio/mp4" };

export const speech = {
  name: "speech",
  title: "Speech",
  about: "Speaks a text. Choose several engines to compare them; each may speak with its own voice.",
  verb: "Speak",
  fields: [
    { name: "input", label: "Text", kind: "text", rows: 3, value: "Good morning. The train to Paris leaves at nine.", wide: true },
    { name: "language", label: "Language", kind: "choice", value: "en", options: languages },
    { name: "response_format", label: "Format", kind: "choice", more: true, value: "wav", options: () => FORMATS.map((format) => [format, format]) },
    { name: "speed", label: "Speed, where the engine has it", kind: "number", min: 0.5, max: 2, step: 0.1, more: true },
    { name: "instructions", label: "How to speak, where the engine follows it", kind: "line", more: true },
  ],

  /** The voices are a part of the form that depends on the lists of the server: a row for each engine. */
  prepare(desk) {
    desk.voices = h("fieldset", { class: "voices" }, h("legend", {}, "Engines and voices"));
    desk.form.element.append(desk.voices);
    fillVoices(desk.voices);
  },

  request(values, desk) {
    const [speaker] = chosen(desk.voices);
    return described(values, speaker);
  },

  async run(desk, values) {
    const speakers = chosen(desk.voices);
    const places = speakers.map((speaker) => h("article", { class: "card spoken" }, h("h3", {}, nameOf(speaker)), h("p", { class: "muted" }, "waiting …")));
    replace(desk.output, h("div", { class: "side-by-side" }, places));
    const ends = await Promise.allSettled(speakers.map((speaker, index) => speak(desk, described(values, speaker), speaker, places[index])));
    desk.signal.throwIfAborted();
    const spoken = ends.filter(({ status }) => status === "fulfilled").length;
    return `${spoken} of ${speakers.length} spoken.`;
  },
};

async function languages() {
  const { languages_by_provider: byProvider } = await list("v1/audio/voices");
  return [["auto", "Detect it"], ...languageOptions([...new Set(Object.values(byProvider).flat())])];
}

async function fillVoices(place) {
  try {
    const [engines, { data }] = await Promise.all([models("tts"), list("v1/audio/voices")]);
    const rows = engines.map((engine, index) => {
      const voices = data.filter(({ model, selectable, available }) => model === engine.id && selectable && available);
      return voiceRow(engine, voices, index === 0);
    });
    place.append(...(rows.length ? rows : [h("p", { class: "muted" }, "No engine of speech is set up here.")]));
  } catch (error) {
    place.append(h("p", { class: "muted" }, `The voices could not be read: ${error.message}`));
  }
  place.dispatchEvent(new Event("input", { bubbles: true }));
}

function voiceRow(engine, voices, isChosen) {
  const id = `voice-${engine.id}`;
  const label = ({ label: name, gender, primary_language: language }) => `${name} (${gender}, ${language})`;
  const options = [h("option", { value: "" }, "its default voice"), voices.map((voice) => h("option", { value: voice.slug }, visible(label(voice))))];
  const check = h("input", { type: "checkbox", id, checked: isChosen, "data-model": engine.id });
  const menu = h("select", { "aria-label": `Voice of ${engine.id}` }, options);
  return h("div", { class: "row voice" }, h("span", { class: "switch" }, check, h("label", { for: id }, visible(engine.id))), menu);
}

function chosen(place) {
  const rows = [...place.querySelectorAll(".voice")].filter((row) => row.querySelector("input").checked);
  if (!rows.length) throw new Mistake("Choose at least one engine.");
  return rows.map((row) => ({ model: row.querySelector("input").dataset.model, voice: row.querySelector("select").value || undefined }));
}

const nameOf = ({ model, voice }) => `${visible(model)}${voice ? `, ${visible(voice)}` : ""}`;

// An SDK insists on a voice; `default-en` and `default-de` stand for an engine's own only where none is named.
function described(values, speaker) {
  if (!values.input) throw new Mistake("Text: write something to speak.");
  const json = present({ ...values, ...speaker });
  const takes = ["model", "voice", "input", "response_format", "speed", "instructions"];
  const sdk = { call: "audio.speech.with_streaming_response.create", takes, lead: "with ", tail: `) as reply:\n    reply.stream_to_file("speech.${json.response_format}")` };
  return { path: "v1/audio/speech", json, saves: `speech.${json.response_format}`, sdk: json.voice ? sdk : undefined };
}

async function speak(desk, request, speaker, place) {
  const [note] = place.querySelectorAll(".muted");
  const fill = (...children) => replace(place, h("h3", {}, nameOf(speaker)), ...children);
  const again = () => speak(desk, request, speaker, place).then(() => "Spoken.", () => "Not spoken.");
  const startedMs = performance.now();
  try {
    const headers = { "X-Service-Progress": "1" };
    const reply = await send({ ...request, headers, json: { ...request.json, stream_format: "sse" } }, desk.signal);
    const sound = await collected(reply, (event) => (note.textContent = waiting(event)));
    const blob = new Blob([sized(sound.bytes)], { type: mediaType(request.json.response_format) });
    const { element, seconds } = await player(blob, nameOf(speaker));
    fill(element, await told(reply, sound, { startedMs, seconds, speaker }), facts(reply));
  } catch (error) {
    fill(error.name === "AbortError" ? h("p", { class: "muted" }, "stopped") : failure(error, () => desk.run(again)));
    throw error;
  }
}

const mediaType = (format) => TYPES[format] ?? `audio/${format}`;

async function collected(reply, onWait) {
  const pieces = [];
  let [firstMs, usage] = [null, {}];
  for await (const { event, data } of eventsOf(reply)) {
    if (event === "queue_status") onWait(data);
    if (data.type === "speech.audio.delta") pieces.push(Uint8Array.from(atob(data.audio), (char) => char.charCodeAt(0)));
    if (pieces.length) firstMs ??= performance.now();
    usage = data.usage ?? usage;
  }
  const bytes = new Uint8Array(await new Blob(pieces).arrayBuffer());
  return { bytes, usage, firstMs, doneMs: performance.now() };
}

async function told(reply, { bytes, usage, firstMs, doneMs }, { startedMs, seconds, speaker }) {
  const entry = (await models("tts")).find(({ id }) => id === speaker.model);
  return pairs([
    ["spoken by", visible(reply.headers.get("x-service-model-served") ?? "")],
    ["first sound after", duration(firstMs - startedMs)],
    ["whole after", duration(doneMs - startedMs)],
    ["length", seconds && `${seconds.toFixed(1)} s, made ${(seconds / ((doneMs - startedMs) / 1000)).toFixed(1)} times as fast as it plays`],
    ["size", `${Math.ceil(bytes.length / 1024)} KiB`],
    ["cost", priced(entry, { characters: usage.characters, audio_seconds: usage.seconds })],
  ]);
}
