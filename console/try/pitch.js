// The pitch of a designed voice: the band that was ordered, the quartiles that were measured, and the attempts it took.
import { svg } from "../dom.js";
import { table } from "../parts.js";
import { figure, round } from "./drawing.js";

const SIZE = { width: 640, height: 148 };
const [LOWEST, HIGHEST] = [60, 400];
const TICKS = [60, 80, 100, 140, 200, 280, 400];
const [TOP, AXIS] = [34, 114];

// Pitch is heard in ratios, so the axis is logarithmic.
const x = (hz) => 20 + (Math.log(Math.min(Math.max(hz, LOWEST), HIGHEST) / LOWEST) / Math.log(HIGHEST / LOWEST)) * (SIZE.width - 40);
const line = (name, from, to, y1, y2) => svg("line", { class: name, x1: x(from), x2: x(to), y1, y2 });
const text = (hz, y, words) => svg("text", { x: x(hz), y, "text-anchor": "middle" }, words);
const hertz = (value) => (value ? `${round(value, 1)} Hz` : "–");

/** A figure of one draft, an answer of `GET /v1/audio/voices/designs/{id}`; `attempts` is how many there may be. */
export function pitch({ band_hz: [from, to], target_hz: target, measurements }, attempts) {
  const { f0_hz: median, p25_hz: low, p75_hz: high, in_band: inBand, attempts_used: used } = measurements;
  const measured = median ? [
    line("quartiles", low, high, 64, 64),
    svg("circle", { class: inBand ? "median good" : "median", cx: x(median), cy: 64, r: 7 }),
    text(median, 98, `${Math.round(median)} Hz`),
  ] : text(155, 80, "not measured yet");
  const shapes = [
    svg("rect", { class: "ordered", x: x(from), width: x(to) - x(from), y: TOP, height: AXIS - TOP }),
    line("target", target, target, TOP, AXIS),
    text(target, 25, `ordered ${target} Hz`),
    line("axis", LOWEST, HIGHEST, AXIS, AXIS),
    TICKS.map((hz) => text(hz, AXIS + 24, hz)),
    measured,
    used && attemptDots(used, attempts),
  ];
  const said = median ? `measured ${hertz(median)}, ${inBand ? "in" : "out of"} the band, after ${used} of ${attempts} attempts` : "not measured yet";
  const rows = [
    ["band ordered", `${round(from, 1)} to ${round(to, 1)} Hz`], ["target", hertz(target)], ["median measured", hertz(median)],
    ["lower quartile", hertz(low)], ["upper quartile", hertz(high)], ["attempts", used ? `${used} of ${attempts}` : "–"],
  ];
  return figure(`Pitch: ordered ${Math.round(from)} to ${Math.round(to)} Hz, ${said}`, SIZE, shapes, table("Pitch", ["measure", "value"], rows));
}

// The server keeps the pitch of the best attempt only; the others are known by their number.
const attemptDots = (used, attempts) => Array.from({ length: attempts }, (_, index) =>
  svg("circle", { class: index < used ? "attempt used" : "attempt", cx: SIZE.width - 10 - (attempts - index) * 16, cy: 16, r: 5 }));
