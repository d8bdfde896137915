// One engine as a card that is updated in place, with the band of its states over the last hour.

import { h, keep, named, replace, set, svg, visible, write } from "./dom.js";
import { clock, count, duration } from "./format.js";
import { axis, drawn, folded, table } from "./parts.js";
import { badge, heightOf } from "./states.js";
import { HOUR_MS } from "./timeline.js";

const HEIGHT = 24;
const DOTS = 24; // more slots than this are a number only

/** An `li` with `update(engine, nowMs)`. */
export function engineCard(engine) {
  const label = visible(engine.name);
  const [state, slots, dots, facts] = [h("span"), h("span"), h("span", { class: "dots", "aria-hidden": "true" }), numbers()];
  const progress = h("progress", { class: "loading", max: 1, value: 0, "aria-label": `Loading of ${label}` });
  const models = h("span");
  const picture = band(`States of ${label} in the last hour; the table below says the same.`);
  const table = bandTable(`States of ${label} in the last hour, newest first`);
  const card = h("li", { class: "card engine" },
    h("header", {}, h("h2", {}, named(engine.name)), state),
    h("p", { class: "muted kind" }, visible(engine.capability).replaceAll("_", " "), models),
    h("p", { class: "slots" }, dots, slots),
    progress,
    facts.list,
    picture.drawing,
    axis("an hour ago", "now"),
    table.element);
  table.element.addEventListener("toggle", () => table.update(card.engine.timeline.runs(card.nowMs)));
  card.update = (next, nowMs) => {
    Object.assign(card, { engine: next, nowMs });
    if (state.dataset.state !== next.state) {
      state.dataset.state = next.state;
      replace(state, badge(next.state));
    }
    showSlots(dots, slots, next);
    write(models, `: ${next.models.map(visible).join(", ")}`);
    facts.update(next);
    progress.hidden = next.state !== "starting" || !next.expected_load_s;
    const elapsedS = (nowMs - (next.timeline.sinceMs ?? nowMs)) / 1000;
    if (!progress.hidden) set(progress, "value", Math.min(0.97, elapsedS / next.expected_load_s).toFixed(2));
    const runs = next.timeline.runs(nowMs);
    picture.update(runs, nowMs);
    table.update(runs);
  };
  return card;
}

function showSlots(dots, text, engine) {
  const drawn = [...Array(engine.slots <= DOTS ? engine.slots : 0).keys()];
  keep(dots, drawn, (index) => index, () => h("span"), (dot, index) => set(dot, "class", index < engine.used ? "dot used" : "dot"));
  write(text, engine.slots ? `${engine.used === undefined ? "" : `${count(engine.used)} of `}${count(engine.slots)} slots` : "no slots while it is not loaded");
}

/** The numbers of a card: title, field, text, and the class of one above zero. Counts are for operators alone. */
const NUMBERS = [
  ["Waiting", "waiting", count, "warn"],
  ["Last load", "last_load_s", (seconds) => (seconds === null ? "none" : duration(seconds * 1000))],
  ["Requests/min", "requests_per_minute", count],
  ["Errors/min", "errors_per_minute", count, "bad"],
];

function numbers() {
  const cells = NUMBERS.map(() => h("dd"));
  const list = h("dl", { class: "facts" }, NUMBERS.map(([title], index) => h("div", {}, h("dt", {}, title), cells[index])));
  const update = (engine) =>
    NUMBERS.forEach(([, field, text, worry], index) => {
      const value = engine[field];
      cells[index].parentElement.hidden = value === undefined;
      if (value !== undefined) set(write(cells[index], text(value)), "class", value > 0 && worry);
    });
  return { list, update };
}

/** The drawing. `update(runs, nowMs)` brings it up to date in place. */
function band(label) {
  const runs = svg("g");
  const ticks = [900, 1800, 2700].map((x) => svg("line", { x1: x, x2: x, y2: HEIGHT, class: "tick" }));
  const drawing = drawn(label, 3600, HEIGHT, { preserveAspectRatio: "none", class: "band" }, ticks, runs);
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
function bandTable(label) {
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
