// The pitch of a designed voice: the band that was ordered, the quartiles that were measured, and the attempts it took.
import { svg } from "../dom.js";
import { figure, round, table } from "./drawing.js";

const SIZE = { width: 640, height: 132 };
const [LOWEST, HIGHEST] = [60, 400];
const TICKS = [60, 80, 100, 140, 200, 280, 400];
const AXIS = 104;

// Pitch is heard in ratios, so the axis is logarithmic.
const x = (hz) => 20 + (Math.log(Math.min(Math.max(hz, LOWEST), HIGHEST) / LOWEST) / Math.log(HIGHEST / LOWEST)) * (SIZE.width - 40);

/** A figure of one draft, an answer of `GET /v1/audio/voices/designs/{id}`; `attempts` is how many there may be. */
export function pitch({ band_hz: band, target_hz: target, measurements }, attempts) {
  const { f0_hz: median, p25_hz: low, p75_hz: high, in_band: inBand, attempts_used: used } = measurements;
  const [from, to] = band;
  const label = (hz, y, text, anchor = "middle") => svg("text", { x: x(hz), y, "text-anchor": anchor }, text);
  const shapes = [
    svg("rect", { class: "band", x: x(from), width: x(to) - x(from), y: 22, height: AXIS - 22 }),
    svg("line", { class: "target", x1: x(target), x2: x(target), y1: 22, y2: AXIS }),
    label(target, 14, `ordered ${target} Hz`),
    svg("line", { class: "axis", x1: 20, x2: SIZE.width - 20, y1: AXIS, y2: AXIS }),
    TICKS.map((hz) => label(hz, AXIS + 18, hz === HIGHEST ? `${hz} Hz` : String(hz))),
    ...(median ? measuredShapes(median, low ?? median, high ?? median, inBand) : [label(Math.sqrt(LOWEST * HIGHEST), 66, "not measured yet")]),
    used ? attemptDots(used, attempts) : [],
  ];
  const told = median ? `measured ${round(median, 1)} Hz, ${inBand ? "in" : "out of"} the band, after ${used} of ${attempts} attempts` : "not measured yet";
  const rows = [
    ["band ordered", `${round(from, 1)} to ${round(to, 1)} Hz`], ["target", `${target} Hz`], ["median measured", hertz(median)],
    ["lower quartile", hertz(low)], ["upper quartile", hertz(high)], ["attempts", used ? `${used} of ${attempts}` : "–"],
  ];
  return figure(`Pitch: ordered ${round(from, 0)} to ${round(to, 0)} Hz, ${told}`, SIZE, shapes, table("Pitch", ["", "value"], rows));
}

const hertz = (value) => (value ? `${round(value, 1)} Hz` : "–");

function measuredShapes(median, low, high, inBand) {
  const y = 58;
  return [
    svg("line", { class: "quartiles", x1: x(low), x2: x(high), y1: y, y2: y }),
    svg("circle", { class: inBand ? "median good" : "median", cx: x(median), cy: y, r: 7 }),
    svg("text", { x: x(median), y: y + 24, "text-anchor": "middle" }, `${Math.round(median)} Hz`),
  ];
}

// The server keeps the pitch of the best attempt only; the others are known by their number.
function attemptDots(used, attempts) {
  return Array.from({ length: attempts }, (_, index) =>
    svg("circle", { class: index < used ? "attempt used" : "attempt", cx: SIZE.width - 24 - (attempts - 1 - index) * 16, cy: 12, r: 5 }));
}
