// The band of an engine's states over the last hour, as SVG, and the same as a table.

import { h, keep, set, svg, write } from "./dom.js";
import { clock, duration } from "./format.js";
import { folded, table } from "./parts.js";
import { heightOf } from "./states.js";
import { HOUR_MS } from "./timeline.js";

const HEIGHT = 24;
/** The drawing. `update(runs, nowMs)` brings it up to date in place. */
export function band(label) {
  const runs = svg("g");
  const drawing = svg(
    "svg",
    { class: "band", viewBox: `0 0 3600 ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    [900, 1800, 2700].map((x) => svg("line", { x1: x, x2: x, y2: HEIGHT, class: "tick" })),
    runs,
  );
  const update = (list, nowMs) =>
    keep(runs, list, (run) => run.fromMs, () => svg("rect"), (rect, run) => {
      const height = heightOf(run.state);
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
  const element = folded("States of the last hour as a table", table(label, ["From", "For", "State"], []));
  const rows = element.querySelector("tbody");
  const update = (list) => {
    if (!element.open) return;
    keep(rows, list.toReversed(), (run) => run.fromMs, row, (tr, run) => {
      const cells = [clock(run.fromMs), duration(run.toMs - run.fromMs), run.state];
      cells.forEach((text, column) => write(tr.children[column], text));
    });
  };
  return { element, update };
}

const row = () => h("tr", {}, h("td"), h("td"), h("td"));
