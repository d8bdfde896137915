// The states of an engine, from the least to the most telling. Each has a shape, a height in a band and a word: none needs
// its colour.

import { h, svg } from "./dom.js";

const circle = (props) => svg("circle", { cx: 6, cy: 6, ...props });
const path = (d, kind) => svg("path", { d, class: kind });

const STATES = {
  cold: { height: 3, words: "not loaded; the next request starts it", draw: () => circle({ r: 4.5, class: "hollow" }) },
  ready: { height: 12, words: "loaded, with a free slot", draw: () => circle({ r: 5 }) },
  busy: { height: 18, words: "loaded, all slots in use", draw: () => svg("rect", { x: 1.5, y: 1.5, width: 9, height: 9, rx: 1.5 }) },
  starting: { height: 22, words: "loading", draw: () => path("M6 1.5a4.5 4.5 0 1 1-4.5 4.5", "hollow turning") },
  failed: { height: 24, words: "does not start or does not answer", draw: () => path("M2.5 2.5l7 7m0-7l-7 7", "cross") },
};
/** A state of a newer server is shown by its word. */
const UNKNOWN = { height: 9, draw: () => path("M1.5 6h9", "cross") };

const known = (state) => STATES[state] ?? UNKNOWN;

/** How telling a state is, as a number; one of a newer server is most telling. */
export const rank = (state) => (state in STATES ? Object.keys(STATES).indexOf(state) : Infinity);

/** How high a state stands in a band of 24. */
export const heightOf = (state) => known(state).height;

export function badge(state) {
  const shape = svg("svg", { class: "shape", viewBox: "0 0 12 12", width: 12, height: 12, "aria-hidden": "true" }, known(state).draw());
  return h("span", { class: `badge state-${state}` }, shape, h("span", {}, state));
}

/** What the shapes and the heights of a band mean. */
export const legend = () =>
  h("dl", { class: "legend" }, Object.entries(STATES).map(([state, { words }]) => h("div", {}, h("dt", {}, badge(state)), h("dd", {}, words))));
