// The band of an engine's states over the last hour, as SVG, and the same as a table.

import { h, keep, set, svg, write } from "./dom.js";
import { clock, duration } from "./format.js";
import { HOUR_MS } from "./timeline.js";

const HEIGHT = 24;
/** How high a state stands in the band: it can be read without colours. */
const HEIGHTS = { cold: 3, ready: 12, busy: 18, starting: 22, failed: 24 };

/** The drawing. `update(runs, nowMs)` brings it up to date in place. */
export function band(label) {
  const runs = svg("g");
  const drawing = svg(
    "svg",
    { class: "band", viewBox: `0 0 3600 ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    [900, 1800, 2700].map((x) => svg("line", { x1: x, x2: x, y1: 0, y2: HEIGHT, class: "tick" })),
    runs,
  );
  const update = (list, nowMs) =>
    keep(runs, list, (run) => run.fromMs, () => svg("rect"), (rect, run) => {
      const height = HEIGHTS[run.state] ?? HEIGHT;
      set(rect, "class", `state-${run.state}`);
      set(rect, "x", Math.max(0, ((run.fromMs - nowMs + HOUR_MS) / 1000)).toFixed(0));
      set(rect, "width", Math.max(4, (run.toMs - Math.max(run.fromMs, nowMs - HOUR_MS)) / 1000).toFixed(0));
      set(rect, "y", HEIGHT - height);
      set(rect, "height", height);
    });
  return { drawing, update };
}

/** The same as rows, newest first, made while it is open only. */
export function bandTable(label) {
  const rows = h("tbody");
  const details = h(
    "details",
    { class: "twin" },
    h("summary", {}, "States of the last hour as a table"),
    h(
      "table",
      {},
      h("caption", { class: "visually-hidden" }, label),
      h("thead", {}, h("tr", {}, ["From", "For", "State"].map((title) => h("th", { scope: "col" }, title)))),
      rows,
    ),
  );
  const update = (list) => {
    if (!details.open) return;
    keep(rows, list.toReversed(), (run) => run.fromMs, row, (tr, run) => {
      write(tr.children[0], clock(run.fromMs));
      write(tr.children[1], duration(run.toMs - run.fromMs));
      write(tr.children[2], run.state);
    });
  };
  return { details, update };
}

const row = () => h("tr", {}, h("td"), h("td"), h("td"));
