// View `usage`: what is left of the budget, what each day and model cost, and the keys.

import { read } from "./api.js";
import { dayOf, usageBars } from "./bars.js";
import { h, named, replace, write } from "./dom.js";
import { date, money } from "./format.js";
import { field, menu, muted, note, row, table } from "./parts.js";

export const name = "usage";
export const title = "Usage";

const MOST = 1000; // lines of usage that the server gives at once: 90 days of eleven models
const SPANS = [["7", "7 days"], ["30", "30 days"], ["90", "90 days"]];
const SUMS = [["cost", "cost"], ["requests", "requests"]];

class UsageView extends HTMLElement {
  #budget = h("div", { class: "budget" });
  #bars = h("div");
  #keys = h("div");
  #fault = h("p", { class: "error", role: "alert" });
  #days = menu({ id: "days", onChange: () => this.#load() }, SPANS, "30");
  #sums = menu({ id: "sums", onChange: () => this.#draw() }, SUMS);
  #usage = { data: [] };
  #ending = new AbortController();

  connectedCallback() {
    const choice = row(field("Last", this.#days), field("Show", this.#sums));
    replace(this, this.#fault, section("Budget", this.#budget), section("By day and model", choice, this.#bars), section("Keys", this.#keys));
    this.#load();
    this.#read("console/keys", (list) => replace(this.#keys, keys(list.data)));
  }

  disconnectedCallback() {
    this.#ending.abort();
  }

  async #read(path, show) {
    try {
      show(await read(path, { signal: this.#ending.signal }));
      write(this.#fault, "");
    } catch (error) {
      if (error.name !== "AbortError") write(this.#fault, error.message);
    }
  }

  #load() {
    return this.#read(`v1/me/usage?from=${dayOf(this.#days.value - 1)}&limit=${MOST}`, (usage) => {
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

customElements.define("usage-view", UsageView);
