// Drawings that are tables as well: bars in rows, and figures with a table that opens beneath them.
import { h, svg } from "../dom.js";
import { folded } from "../parts.js";

export const round = (value, digits = 3) => (Number.isFinite(value) ? value.toFixed(digits) : "–");

/** A bar to `share` of its cell (0 to 1), for the eye alone: the number stands beside it. */
export function bar(share, { from = 0, mark } = {}) {
  const percent = (value) => `${(Math.min(Math.max(value, 0), 1) * 100).toFixed(2)}%`;
  const rect = (name, x, width) => svg("rect", { class: name, x: percent(x), width: percent(width), height: 14 });
  const line = mark !== undefined && svg("line", { class: "mark", x1: percent(mark), x2: percent(mark), y2: 14 });
  return svg("svg", { class: "bar-drawing", height: 14, "aria-hidden": "true" }, rect("track", 0, 1), rect("fill", Math.min(from, share), Math.abs(share - from)), line);
}

/** A drawing of `width` by `height` units with what it shows in words, and its table. */
export function figure(label, { width, height }, shapes, twin) {
  const drawing = svg("svg", { class: "figure", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, shapes);
  return h("figure", {}, drawing, folded("As a table", twin));
}
