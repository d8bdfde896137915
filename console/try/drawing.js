// Drawings that are tables as well: bars in rows, and figures with a table that opens beneath them.
import { h, svg } from "../dom.js";

const round = (value, digits = 3) => (Number.isFinite(value) ? value.toFixed(digits) : "–");

/** A bar of `share` (0 to 1) of its cell, for the eye alone: the number stands beside it. */
export function bar(share, { from = 0, mark = null } = {}) {
  const x = (value) => `${(Math.min(Math.max(value, 0), 1) * 100).toFixed(2)}%`;
  const [low, high] = [Math.min(from, share), Math.max(from, share)];
  const line = mark !== null && svg("line", { class: "mark", x1: x(mark), x2: x(mark), y1: 0, y2: 14 });
  return svg("svg", { class: "bar-drawing", height: 14, "aria-hidden": "true" }, svg("rect", { class: "track", width: "100%", height: 14 }),
    svg("rect", { class: "fill", x: x(low), width: x(high - low), height: 14 }), line);
}

/** A table with these titles of columns; each row is an array of texts and elements. */
export function table(caption, heads, rows, { hideCaption = false } = {}) {
  const row = (cells) => h("tr", {}, cells.map((cell, index) => (index === 0 ? h("th", { scope: "row" }, cell) : h("td", {}, cell))));
  const content = h("table", {}, h("caption", { class: hideCaption ? "visually-hidden" : null }, caption),
    h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))), h("tbody", {}, rows.map(row)));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, content);
}

/** A drawing of `width` by `height` units with what it shows in words, and its table. */
export function figure(label, { width, height }, shapes, twin) {
  const drawing = svg("svg", { class: "figure", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, shapes);
  return h("figure", {}, drawing, h("details", {}, h("summary", {}, "As a table"), twin));
}

export { round };
