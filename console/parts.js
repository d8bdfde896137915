// Small parts that views and panels are made of. Drawings are tables as well: bars in rows, and figures with a table beneath.
import { read } from "./api.js";
import { h, svg, write } from "./dom.js";

export const button = (text, onClick) => h("button", { class: "button quiet", type: "button", onClick }, text);
export const row = (...children) => h("div", { class: "row" }, children);
export const muted = (...children) => h("p", { class: "muted" }, children);
export const alert = (props) => h("p", { class: "error", role: "alert", ...props });
export const note = (...children) => h("p", { class: "note" }, children);

export const field = (label, control) => h("div", {}, h("label", { class: "field", for: control.id }, label), control);

/** Words along the edge of a drawing, for the eye alone. */
export const axis = (...words) => h("p", { class: "axis muted", "aria-hidden": "true" }, words.map((text) => h("span", {}, text)));

/** A menu of `[value, label]` pairs. */
export const menu = (props, choices, chosen) =>
  h("select", props, choices.map(([value, label]) => h("option", { value, selected: value === chosen }, label)));

/** What opens on a click on `summary`. */
export const folded = (summary, ...children) => h("details", {}, h("summary", {}, summary), children);

export const joined = (...texts) => texts.filter(Boolean).join(", ");

/** A list of names and values, without those that are not there. */
export function pairs(entries) {
  const rows = entries.filter(([, value]) => value || value === 0);
  return h("dl", { class: "facts" }, rows.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

const side = (column, numbers) => ({ class: numbers.includes(column) ? "number" : null });

export const tableRow = ([first, ...others], numbers) =>
  h("tr", {}, h("th", { scope: "row" }, first), others.map((cell, index) => h("td", side(index + 1, numbers), cell)));

/** A table with these titles of columns; each row is an array of texts and elements. `numbers`: columns to the right. */
export function table(caption, heads, rows, numbers = []) {
  const head = heads.map((title, index) => (title === "" ? h("td", {}) : h("th", { scope: "col", ...side(index, numbers) }, title)));
  const lines = rows.map((cells) => tableRow(cells, numbers));
  const content = h("table", {}, h("caption", {}, caption), h("thead", {}, h("tr", {}, head)), h("tbody", {}, lines));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, content);
}

export const round = (value, digits = 3) => (Number.isFinite(value) ? value.toFixed(digits) : "–");

/** A bar to `share` of its cell (0 to 1), for the eye alone: the number stands beside it. */
export function bar(share, { from = 0, mark } = {}) {
  const percent = (value) => `${(Math.min(Math.max(value, 0), 1) * 100).toFixed(2)}%`;
  const rect = (name, x, width) => svg("rect", { class: name, x: percent(x), width: percent(width), height: 14 });
  const line = mark !== undefined && svg("line", { class: "mark", x1: percent(mark), x2: percent(mark), y2: 14 });
  return svg("svg", { class: "bar-drawing", height: 14, "aria-hidden": "true" }, rect("track", 0, 1), rect("fill", Math.min(from, share), Math.abs(share - from)), line);
}

/** A drawing of `width` by `height` units that is called `label`. */
export const drawn = (label, width, height, props, ...shapes) =>
  svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label, ...props }, shapes);

/** A drawing of `width` by `height` units with what it shows in words, and its table. */
export function figure(label, { width, height }, shapes, twin) {
  return h("figure", {}, drawn(label, width, height, { class: "figure" }, shapes), folded("As a table", twin));
}

/** A view that reads from the server while it is on the page, and tells in `fault` what could not be read. */
export class ReadingView extends HTMLElement {
  fault = alert();
  #ending = new AbortController();

  disconnectedCallback() {
    this.#ending.abort();
  }

  async read(path, show, fail = (message) => write(this.fault, message)) {
    try {
      show(await read(path, { signal: this.#ending.signal }));
      write(this.fault, "");
    } catch (error) {
      if (error.name !== "AbortError") fail(error.message);
    }
  }
}
