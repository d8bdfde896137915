// How the states of an engine are drawn: each has a shape and a word, so that colour is not needed.

import { h, svg } from "./dom.js";

const SHAPES = {
  cold: () => svg("circle", { cx: 6, cy: 6, r: 4.5, class: "hollow" }),
  starting: () => svg("path", { d: "M6 1.5a4.5 4.5 0 1 1-4.5 4.5", class: "hollow turning" }),
  ready: () => svg("circle", { cx: 6, cy: 6, r: 5 }),
  busy: () => svg("rect", { x: 1.5, y: 1.5, width: 9, height: 9, rx: 1.5 }),
  failed: () => svg("path", { d: "M2.5 2.5l7 7m0-7l-7 7", class: "cross" }),
};

export const WORDS = {
  cold: "not loaded; the next request starts it",
  starting: "loading",
  ready: "loaded, with a free slot",
  busy: "loaded, all slots in use",
  failed: "does not start or does not answer",
};

/** The shape of a state, 12 by 12. */
export const shape = (state) =>
  svg("svg", { class: `shape state-${state}`, viewBox: "0 0 12 12", width: 12, height: 12, "aria-hidden": "true" }, SHAPES[state]?.() ?? []);

/** Shape and word. */
export const badge = (state) => h("span", { class: `badge state-${state}` }, shape(state), h("span", {}, state));

/** What the shapes and the heights of a band mean. */
export const legend = () =>
  h(
    "dl",
    { class: "legend" },
    Object.entries(WORDS).map(([state, words]) => h("div", {}, h("dt", {}, badge(state)), h("dd", {}, words))),
  );
