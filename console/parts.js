// Small parts that views and panels are made of.
import { h } from "./dom.js";

export const button = (text, onClick) => h("button", { class: "button quiet", type: "button", onClick }, text);
export const row = (...children) => h("div", { class: "row" }, children);
export const muted = (...children) => h("p", { class: "muted" }, children);
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

/** A table with these titles of columns; each row is an array of texts and elements. `numbers`: columns to the right. */
export function table(caption, heads, rows, numbers = []) {
  const side = (column) => ({ class: numbers.includes(column) ? "number" : null });
  const line = ([first, ...others]) => h("tr", {}, h("th", { scope: "row" }, first), others.map((cell, index) => h("td", side(index + 1), cell)));
  const head = heads.map((title, index) => (title === "" ? h("td", {}) : h("th", { scope: "col", ...side(index) }, title)));
  const content = h("table", {}, h("caption", {}, caption), h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows.map(line)));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, content);
}
