// Small parts that panels are made of.
import { h } from "../dom.js";

export const button = (text, onClick) => h("button", { class: "button quiet", type: "button", onClick }, text);
export const row = (...children) => h("div", { class: "row" }, children);
export const muted = (...children) => h("p", { class: "muted" }, children);

/** What opens on a click on `summary`. */
export const folded = (summary, ...children) => h("details", {}, h("summary", {}, summary), children);

/** Texts that are there, with commas between them. */
export const joined = (...texts) => texts.filter(Boolean).join(", ");
