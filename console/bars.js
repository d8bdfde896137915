// Usage as bars, a day each, stacked by model, with the same numbers as a table.

import { h, named, svg } from "./dom.js";
import { count, money } from "./format.js";
import { axis, folded, joined, note, table } from "./parts.js";

const COLOURS = 6; // the sixth is for all models that cost less
const DAY_MS = 86_400_000;
const HEIGHT = 140;
const SLOT = 20;

/** The day so many days ago, as the server writes it. */
export const dayOf = (ago) => new Date(Date.now() - ago * DAY_MS).toISOString().slice(0, 10);

/** `rows` of `/v1/me/usage` as a drawing and a table. `measure` is `cost` or `requests`. */
export function usageBars(rows, measure, days) {
  if (!rows.length) return note("Nothing was used in this time. Usage is billed when a request ends.");
  const [field, text] = measure === "cost" ? ["cost_micro_eur", money] : ["requests", count];
  const totals = new Map();
  for (const row of rows) totals.set(row.model, (totals.get(row.model) ?? 0) + row[field]);
  const order = [...totals.keys()].sort((one, other) => totals.get(other) - totals.get(one));
  return [drawing(rows, field, text, days, order), legend(order, totals, text), folded("As a table", twin(rows))];
}

function drawing(rows, field, text, days, order) {
  const byDay = Map.groupBy(rows, (row) => row.day);
  const lists = Array.from({ length: days }, (_, index) => byDay.get(dayOf(days - 1 - index)) ?? []);
  const most = Math.max(1, ...lists.map((list) => list.reduce((sum, row) => sum + row[field], 0)));
  const rank = (row) => order.indexOf(row.model);
  const bars = lists.flatMap((list, day) => {
    let y = HEIGHT;
    return list.toSorted((one, other) => rank(one) - rank(other)).map((row) => {
      const height = (row[field] / most) * HEIGHT;
      y -= height;
      return svg("rect", { class: `series-${Math.min(rank(row), COLOURS - 1)}`, x: day * SLOT + 3, width: SLOT - 6, y, height });
    });
  });
  const label = "Usage by day, stacked by model; the table says the same.";
  return h("figure", { class: "usage-bars" },
    axis(`most in a day: ${text(most)}`),
    svg("svg", { viewBox: `0 0 ${days * SLOT} ${HEIGHT}`, preserveAspectRatio: "none", height: HEIGHT, role: "img", "aria-label": label }, bars),
    axis(dayOf(days - 1), dayOf(0)));
}

function legend(order, totals, text) {
  const [shown, others] = [order.slice(0, COLOURS - 1), order.slice(COLOURS - 1)];
  const item = (label, index, sum) =>
    h("li", {}, h("span", { class: `key series-${index}`, "aria-hidden": "true" }), label, " ", h("span", { class: "muted" }, text(sum)));
  const rest = others.reduce((sum, model) => sum + totals.get(model), 0);
  const last = others.length > 0 && item(others.length === 1 ? named(others[0]) : `${others.length} others`, COLOURS - 1, rest);
  return h("ul", { class: "series" }, shown.map((model, index) => item(named(model), index, totals.get(model))), last);
}

function twin(rows) {
  const quantities = (row) => joined(...Object.entries(row.quantities).map(([unit, number]) => `${count(number)} ${unit.replaceAll("_", " ")}`));
  const cells = (row) => [row.day, named(row.model), count(row.requests), quantities(row), money(row.cost_micro_eur)];
  return table("Usage by day and model", ["Day", "Model", "Requests", "Quantities", "Cost"], rows.toReversed().map(cells), [2, 4]);
}
