// Sound that came or was recorded: a player and its waveform.
import { h, svg } from "../dom.js";
import { figure, muted, table } from "../parts.js";

const SIZE = { width: 640, height: 90 };
const COLUMNS = 320;
const MIDDLE = SIZE.height / 2;

/** A player of `blob` as `element`, `audio`, and `seconds`: null where the browser cannot decode it. */
export async function player(blob, label) {
  const audio = h("audio", { controls: true, src: URL.createObjectURL(blob), "aria-label": label });
  try {
    const sound = await new OfflineAudioContext(1, 1, 48_000).decodeAudioData(await blob.arrayBuffer());
    return { element: h("div", { class: "sound" }, audio, waveform(sound, label, audio)), audio, seconds: sound.duration };
  } catch {
    const note = muted("This browser cannot draw this kind of sound.");
    return { element: h("div", { class: "sound" }, audio, note), audio, seconds: null };
  }
}

function waveform(sound, label, audio) {
  const peaks = peaksOf(sound.getChannelData(0));
  const line = peaks.map(([low, high], column) => {
    const x = ((column + 0.5) * SIZE.width) / COLUMNS;
    return `M${x.toFixed(1)} ${(MIDDLE - high * MIDDLE).toFixed(1)}V${(MIDDLE - low * MIDDLE + 0.5).toFixed(1)}`;
  });
  const cursor = svg("line", { class: "cursor", y2: SIZE.height });
  audio.addEventListener("timeupdate", () => {
    const x = (audio.currentTime / sound.duration) * SIZE.width;
    for (const end of ["x1", "x2"]) cursor.setAttribute(end, x);
  });
  const rows = Array.from({ length: 10 }, (_, tenth) => {
    const loudest = Math.max(...peaks.slice(tenth * (COLUMNS / 10), (tenth + 1) * (COLUMNS / 10)).map(([low, high]) => high - low)) / 2;
    return [`${((tenth * sound.duration) / 10).toFixed(2)} s`, `${Math.round(loudest * 100)} %`];
  });
  const words = `Waveform of ${label}, ${sound.duration.toFixed(1)} s`;
  return figure(words, SIZE, [svg("path", { class: "wave", d: line.join("") }), cursor], table("Loudness", ["start", "highest"], rows));
}

// Lowest and highest sample of each column; of a column shorter than a sample, that sample.
function peaksOf(samples) {
  const step = samples.length / COLUMNS;
  return Array.from({ length: COLUMNS }, (_, column) => {
    const from = Math.floor(column * step);
    const to = Math.max(Math.floor((column + 1) * step), from + 1);
    return samples.subarray(from, to).reduce(([low, high], sample) => [Math.min(low, sample), Math.max(high, sample)], [0, 0]);
  });
}

/** A WAV file that was made as a stream does not know its length: this writes it into its header. */
export function sized(bytes) {
  const view = new DataView(bytes.buffer);
  const tag = (at) => String.fromCharCode(...bytes.subarray(at, at + 4));
  if (bytes.length < 44 || tag(0) !== "RIFF") return bytes;
  view.setUint32(4, bytes.length - 8, true);
  for (let at = 12; at + 8 <= bytes.length; ) {
    const size = view.getUint32(at + 4, true);
    if (tag(at) === "data" && at + 8 + size > bytes.length) view.setUint32(at + 4, bytes.length - at - 8, true);
    at += 8 + size + (size % 2);
  }
  return bytes;
}
