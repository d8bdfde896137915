// Sound that came or was recorded: a player, its waveform, and what was measured of it.
import { h, svg, write } from "../dom.js";
import { duration } from "../format.js";
import { figure, table } from "./drawing.js";

const SIZE = { width: 640, height: 90 };
const COLUMNS = 320;
const MIDDLE = SIZE.height / 2;

/** A player of `blob` with its waveform, along which a line moves. `audio` is its element, `show(samples)` draws. */
export async function player(blob, label) {
  const audio = h("audio", { controls: true, src: URL.createObjectURL(blob), "aria-label": label });
  const element = h("div", { class: "sound" }, audio);
  let sound = null;
  try {
    sound = await decoded(blob);
    const cursor = svg("line", { class: "cursor", x1: 0, x2: 0, y1: 0, y2: SIZE.height });
    audio.addEventListener("timeupdate", () => {
      const x = (audio.currentTime / sound.duration) * SIZE.width;
      for (const end of ["x1", "x2"]) cursor.setAttribute(end, x);
    });
    element.append(waveform(sound, label, cursor));
  } catch {
    element.append(h("p", { class: "muted" }, "This browser cannot draw this kind of sound."));
  }
  return { element, audio, seconds: sound?.duration ?? null };
}

async function decoded(blob) {
  return new OfflineAudioContext(1, 1, 48_000).decodeAudioData(await blob.arrayBuffer());
}

function waveform(sound, label, cursor) {
  const samples = sound.getChannelData(0);
  const peaks = peaksOf(samples);
  const line = peaks.map(([low, high], column) => {
    const x = ((column + 0.5) * SIZE.width) / COLUMNS;
    return `M${x.toFixed(1)} ${(MIDDLE - high * MIDDLE).toFixed(1)}V${(MIDDLE - low * MIDDLE + 0.5).toFixed(1)}`;
  });
  const rows = measured(sound, samples);
  const shapes = [svg("path", { class: "wave", d: line.join("") }), cursor];
  return figure(`Waveform of ${label}: ${duration(sound.duration * 1000)}`, SIZE, shapes, table("What was measured", ["measure", "value"], rows));
}

// Lowest and highest sample of each column; of a column shorter than a sample, that sample.
function peaksOf(samples) {
  const step = samples.length / COLUMNS;
  return Array.from({ length: COLUMNS }, (_, column) => {
    const [from, to] = [Math.floor(column * step), Math.max(Math.floor((column + 1) * step), Math.floor(column * step) + 1)];
    let [low, high] = [0, 0];
    for (let index = from; index < Math.min(to, samples.length); index += 1) {
      low = Math.min(low, samples[index]);
      high = Math.max(high, samples[index]);
    }
    return [low, high];
  });
}

function measured(sound, samples) {
  let [peak, sum, quiet] = [0, 0, 0];
  for (const sample of samples) {
    const size = Math.abs(sample);
    peak = Math.max(peak, size);
    sum += size * size;
    if (size < 0.005) quiet += 1;
  }
  const decibels = (level) => (level > 0 ? `${(20 * Math.log10(level)).toFixed(1)} dBFS` : "silence");
  return [
    ["length", `${sound.duration.toFixed(2)} s`],
    ["channels", String(sound.numberOfChannels)],
    ["loudest sample", decibels(peak)],
    ["mean level", decibels(Math.sqrt(sum / (samples.length || 1)))],
    ["samples below -46 dBFS", `${Math.round((quiet / (samples.length || 1)) * 100)} %`],
  ];
}

/** A WAV file that was made as a stream does not know its length: this writes it into its header. */
export function sized(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const tag = (at) => String.fromCharCode(...bytes.subarray(at, at + 4));
  if (bytes.length < 44 || tag(0) !== "RIFF") return bytes;
  view.setUint32(4, bytes.length - 8, true);
  for (let at = 12; at + 8 <= bytes.length; ) {
    const size = view.getUint32(at + 4, true);
    if (tag(at) === "data") {
      if (at + 8 + size > bytes.length) view.setUint32(at + 4, bytes.length - at - 8, true);
      break;
    }
    at += 8 + size + (size % 2);
  }
  return bytes;
}

/** A button that records from the microphone and gives each recording as a File to `onRecording`. */
export function recorder(onRecording) {
  const said = h("span", { class: "muted", role: "status" });
  const button = h("button", { class: "button quiet", type: "button", "aria-pressed": "false" }, "Record");
  let recording = null;
  const label = () => {
    button.textContent = recording ? "Stop recording" : "Record";
    button.setAttribute("aria-pressed", String(recording !== null));
  };
  button.addEventListener("click", async () => {
    if (recording) return recording.stop();
    try {
      recording = await recordingOf((file) => {
        recording = null;
        label();
        write(said, "Recorded.");
        onRecording(file);
      });
      write(said, "Recording …");
    } catch (error) {
      write(said, refusal(error));
    }
    label();
  });
  return h("div", { class: "row" }, button, said);
}

async function recordingOf(onFile) {
  if (!navigator.mediaDevices) throw new DOMException("", "SecurityError");
  const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
  const recording = new MediaRecorder(stream);
  const pieces = [];
  recording.ondataavailable = ({ data }) => pieces.push(data);
  recording.onstop = () => {
    for (const track of stream.getTracks()) track.stop();
    const type = recording.mimeType.split(";")[0];
    onFile(new File(pieces, `recording.${type.split("/")[1]}`, { type }));
  };
  recording.start();
  return recording;
}

const REFUSALS = {
  NotAllowedError: "The browser did not allow the microphone. Allow it for this page in the browser's settings, or choose a file.",
  NotFoundError: "No microphone was found. Choose a file instead.",
  NotReadableError: "The microphone is used by another program. Close that, or choose a file.",
  SecurityError: "The browser opens the microphone only for pages over https, or of this machine. Choose a file instead.",
};

const refusal = ({ name, message }) => REFUSALS[name] ?? `The microphone could not be opened: ${message || name}.`;
