// View `usage`: what is left of the budget, what each day and model cost, and the keys.

import { h, named, replace, svg } from "./dom.js";
import { count, date, money } from "./format.js";
import { axis, drawn, field, folded, joined, menu, muted, note, ReadingView, row, table } from "./parts.js";

export const name = "usage";
export const title = "Usage";

const MOST = 1000; // lines of usage that the server gives at once: 90 days of eleven models
const SPANS = [["7", "7 days"], ["30", "30 days"], ["90", "90 days"]];
const COLOURS = 6; // the sixth is for all models that cost less
const DAY_MS = 86_400_000;
const HEIGHT = 140;
const SLOT = 20;
const SUMS = [["cost", "cost"], ["requests", "requests"]];

class UsageView extends ReadingView {
  #budget = h("div", { class: "budget" });
  #bars = h("div");
  #keys = h("div");
  #days = menu({ id: "days", onChange: () => this.#load() }, SPANS, "30");
  #sums = menu({ id: "sums", onChange: () => this.#draw() }, SUMS);
  #usage = { data: [] };

  connectedCallback() {
    const choice = row(field("Last", this.#days), field("Show", this.#sums));
    replace(this, this.fault, section("Budget", this.#budget), section("By day and model", choice, this.#bars), section("Keys", this.#keys));
    this.#load();
    this.read("console/keys", (list) => replace(this.#keys, keys(list.data)));
  }

  #load() {
    return this.read(`v1/me/usage?from=${dayOf(this.#days.value - 1)}&limit=${MOST}`, (usage) => {
      this.#usage = usage;
      replace(this.#budget, budget(usage));
      this.#draw();
    });
  }

  #draw() {
    const { data, has_more: isCut } = this.#usage;
    replace(this.#bars, isCut && note("There is more than is shown. Choose fewer days."), usageBars(data, this.#sums.value, Number(this.#days.value)));
  }
}

const section = (heading, ...children) => h("section", { class: "card" }, h("h2", {}, heading), ...children);

/** Budgets of the organisation and the user, each with a bar where there is a limit. */
function budget({ spend, organisation, user }) {
  const rows = [[["Organisation ", named(organisation)], spend.organisation]];
  if (spend.user) rows.push([["User ", named(user ?? "")], spend.user]);
  return rows.map(([label, sums]) => h("div", { class: "account" }, h("h3", {}, label), h("p", {}, sentence(sums)), meter(sums)));
}

function sentence({ limit_micro_eur: limit, spent_micro_eur: spent, held_micro_eur: held, left_micro_eur: left, renewal }) {
  const under = held > 0 ? `, and ${money(held)} held for requests under way` : "";
  const until = renewal?.until ? ` It renews on ${date(renewal.until, "")}.` : "";
  if (limit === null) return `${money(spent)} spent${under}. There is no limit.${until}`;
  return `${money(left)} left of ${money(limit)}: ${money(spent)} spent${under}.${until}`;
}

const meter = ({ limit_micro_eur: limit, spent_micro_eur: spent, held_micro_eur: held }) =>
  limit !== null && h("meter", { max: Math.max(limit, 1), value: Math.min(spent + held, limit), high: limit * 0.9, optimum: 0, "aria-label": "Part of the budget that is spent" });

function keys(list) {
  const titles = ["Key", "Label", "User", "Scopes", "Made", "Expires", "Last used"];
  const cells = ({ key_id: id, label, user, scopes, ...times }) => [
    named(id), label && named(label), user && named(user), scopes.join(", "),
    ...["created_at", "expires_at", "last_used_at"].map((time) => date(times[time], "never")),
  ];
  return [
    muted("Keys are made on the server's command line, and shown once:"),
    h("pre", { tabindex: "0" }, h("code", {}, "python -m state key create --org NAME --scopes all")),
    list.length ? table("Keys that are in force", titles, list.map(cells)) : note("Your key may see no keys."),
  ];
}

/** The day so many days ago, as the server writes it. */
const dayOf = (ago) => new Date(Date.now() - ago * DAY_MS).toISOString().slice(0, 10);

/** `rows` of `/v1/me/usage` as a drawing and a table. `measure` is `cost` or `requests`. */
function usageBars(rows, measure, days) {
  if (!rows.length) return note("Nothing was used in this time. Usage is billed when a request ends.");
  const [field, text] = measure === "cost" ? ["cost_micro_eur", money] : ["requests", count];
  const totals = new Map();
  for (const row of rows) totals.set(row.model, (totals.get(row.model) ?? 0) + row[field]);
  const order = [...totals.keys()].sort((one, other) => totals.get(other) - totals.get(one));
  return [drawing(rows, field, text, days, order), shares(order, totals, text), folded("As a table", twin(rows))];
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
    drawn(label, days * SLOT, HEIGHT, { preserveAspectRatio: "none", height: HEIGHT }, bars),
    axis(dayOf(days - 1), dayOf(0)));
}

function shares(order, totals, text) {
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

customElements.define("usage-view", UsageView);
