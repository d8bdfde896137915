// Usage as bars, a day each, stacked by model, with the same numbers as a table.

import { h, named, svg } from "./dom.js";
import { count, money } from "./format.js";

const COLOURS = 6; // the sixth is for all models that cost less
const DAY_MS = 86_400_000;
const HEIGHT = 140;
const SLOT = 20;

/** `rows` of `/v1/me/usage` as a drawing and a table. `measure` is `cost` or `requests`. */
export function usageBars(rows, measure, days) {
  if (!rows.length) return h("p", { class: "note" }, "Nothing was used in this time. Usage is billed when a request ends.");
  const field = measure === "cost" ? "cost_micro_eur" : "requests";
  const text = measure === "cost" ? money : count;
  const totals = new Map();
  for (const row of rows) totals.set(row.model, (totals.get(row.model) ?? 0) + row[field]);
  const order = [...totals].sort((one, other) => other[1] - one[1]).map(([model]) => model);
  const colour = new Map(order.map((model, index) => [model, Math.min(index, COLOURS - 1)]));
  return [drawing(rows, field, text, days, colour), legend(order, totals, text), table(rows)];
}

function drawing(rows, field, text, days, colour) {
  const today = Math.floor(Date.now() / DAY_MS);
  const sums = new Map(Array.from({ length: days }, (_, index) => [today - days + 1 + index, []]));
  for (const row of rows) sums.get(Date.parse(`${row.day}T00:00:00Z`) / DAY_MS)?.push(row);
  const most = Math.max(1, ...[...sums.values()].map((list) => list.reduce((sum, row) => sum + row[field], 0)));
  const bars = [...sums.values()].flatMap((list, index) => {
    let top = HEIGHT;
    return list
      .toSorted((one, other) => colour.get(one.model) - colour.get(other.model))
      .map((row) => {
        const height = (row[field] / most) * HEIGHT;
        top -= height;
        return svg("rect", { class: `series-${colour.get(row.model)}`, x: index * SLOT + 3, width: SLOT - 6, y: top.toFixed(2), height: height.toFixed(2) });
      });
  });
  const day = (index) => new Date(index * DAY_MS).toISOString().slice(0, 10);
  return h(
    "figure",
    { class: "usage-bars" },
    h("p", { class: "axis muted", "aria-hidden": "true" }, h("span", {}, `most in a day: ${text(most)}`)),
    svg("svg", { viewBox: `0 0 ${days * SLOT} ${HEIGHT}`, preserveAspectRatio: "none", height: HEIGHT, role: "img", "aria-label": "Usage by day, stacked by model; the table says the same." }, bars),
    h("figcaption", { class: "axis muted", "aria-hidden": "true" }, h("span", {}, day(today - days + 1)), h("span", {}, day(today))),
  );
}

function legend(order, totals, text) {
  const shown = order.slice(0, COLOURS - 1);
  const others = order.slice(COLOURS - 1);
  const item = (label, index, sum) => h("li", {}, h("span", { class: `key series-${index}`, "aria-hidden": "true" }), label, " ", h("span", { class: "muted" }, text(sum)));
  const rest = others.reduce((sum, model) => sum + totals.get(model), 0);
  return h(
    "ul",
    { class: "series" },
    shown.map((model, index) => item(named(model), index, totals.get(model))),
    others.length ? item(others.length === 1 ? named(others[0]) : `${others.length} others`, COLOURS - 1, rest) : [],
  );
}

function table(rows) {
  const quantities = (row) => Object.entries(row.quantities).map(([unit, number]) => `${count(number)} ${unit.replaceAll("_", " ")}`);
  const line = (row) =>
    h("tr", {}, h("th", { scope: "row" }, row.day), h("td", {}, named(row.model)), h("td", { class: "number" }, count(row.requests)), h("td", {}, quantities(row).join(", ")), h("td", { class: "number" }, money(row.cost_micro_eur)));
  const titles = ["Day", "Model", "Requests", "Quantities", "Cost"];
  return h(
    "details",
    { class: "twin" },
    h("summary", {}, "As a table"),
    h(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "Usage as a table" },
      h("table", {}, h("caption", { class: "visually-hidden" }, "Usage by day and model"), h("thead", {}, h("tr", {}, titles.map((title) => h("th", { scope: "col", class: title === "Requests" || title === "Cost" ? "number" : null }, title)))), h("tbody", {}, rows.toReversed().map(line))),
    ),
  );
}
