// One engine of the graph as a card that is brought up to date in place.

import { band, bandTable } from "./band.js";
import { h, keep, named, replace, set, visible, write } from "./dom.js";
import { count, duration } from "./format.js";
import { axis } from "./parts.js";
import { badge } from "./states.js";

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
  write(text, engine.slots ? `${count(engine.used)} of ${count(engine.slots)} slots` : "no slots while it is not loaded");
}

/** The numbers of a card, and when they are a worry. */
const NUMBERS = [
  ["Waiting", (engine) => count(engine.waiting), (engine) => engine.waiting > 0 && "warn"],
  ["Last load", (engine) => (engine.last_load_s === null ? "none" : duration(engine.last_load_s * 1000))],
  ["Requests/min", (engine) => count(engine.requests_per_minute)],
  ["Errors/min", (engine) => count(engine.errors_per_minute), (engine) => engine.errors_per_minute > 0 && "bad"],
];

function numbers() {
  const cells = NUMBERS.map(() => h("dd"));
  const list = h("dl", { class: "facts" }, NUMBERS.map(([title], index) => h("div", {}, h("dt", {}, title), cells[index])));
  const update = (engine) => NUMBERS.forEach(([, text, worry], index) => set(write(cells[index], text(engine)), "class", worry?.(engine)));
  return { list, update };
}
