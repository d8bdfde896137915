// View `usage`: what is left of the budget, what each day and model cost, and the keys.

import { read } from "./api.js";
import { usageBars } from "./bars.js";
import { h, named, replace, write } from "./dom.js";
import { date, money } from "./format.js";

export const name = "usage";
export const title = "Usage";

const PAGE = 1000;
const PAGES = 5;
const SPANS = { 7: "7 days", 30: "30 days", 90: "90 days" };
const DAY_MS = 86_400_000;

class UsageView extends HTMLElement {
  #budget = h("div", { class: "budget" });
  #bars = h("div");
  #keys = h("div");
  #fault = h("p", { class: "error", role: "alert" });
  #days = h("select", { id: "days" }, Object.entries(SPANS).map(([days, label]) => h("option", { value: days, selected: days === "30" }, label)));
  #sums = h("select", { id: "sums" }, h("option", { value: "cost" }, "cost"), h("option", { value: "requests" }, "requests"));
  #rows = [];
  #isCut = false;
  #ending = new AbortController();

  connectedCallback() {
    this.#days.addEventListener("change", () => this.#load());
    this.#sums.addEventListener("change", () => this.#draw());
    replace(
      this,
      this.#fault,
      section("Budget", this.#budget),
      section(
        "By day and model",
        h("div", { class: "row" }, field("Last", this.#days), field("Show", this.#sums)),
        this.#bars,
      ),
      section("Keys", this.#keys),
    );
    this.#load();
    this.#read("console/keys", (list) => replace(this.#keys, keys(list.data)));
  }

  disconnectedCallback() {
    this.#ending.abort();
  }

  async #read(path, show) {
    try {
      show(await read(path, { signal: this.#ending.signal }));
    } catch (error) {
      if (error.name !== "AbortError") write(this.#fault, error.message);
    }
  }

  async #load() {
    const from = new Date(Date.now() - (Number(this.#days.value) - 1) * DAY_MS).toISOString().slice(0, 10);
    const query = new URLSearchParams({ from, limit: PAGE });
    const rows = [];
    let page = null;
    for (let pages = 0; pages < PAGES && (pages === 0 || page?.has_more); pages += 1) {
      if (page) query.set("cursor", page.next_cursor);
      page = null;
      await this.#read(`v1/me/usage?${query}`, (reply) => (page = reply));
      if (!page) return;
      rows.push(...page.data);
    }
    this.#rows = rows;
    this.#isCut = page.has_more;
    replace(this.#budget, budget(page.spend, page));
    this.#draw();
  }

  #draw() {
    const note = this.#isCut ? h("p", { class: "note" }, "There is more than is shown. Choose fewer days.") : [];
    replace(this.#bars, note, usageBars(this.#rows, this.#sums.value, Number(this.#days.value)));
  }
}

const section = (heading, ...children) => h("section", { class: "card" }, h("h2", {}, heading), ...children);

const field = (label, control) => h("div", {}, h("label", { class: "field", for: control.id }, label), control);

/** Budgets of the organisation and the user, each with a bar where there is a limit. */
function budget(spend, { organisation, user }) {
  const rows = [[h("span", {}, "Organisation ", named(organisation)), spend.organisation]];
  if (spend.user) rows.push([h("span", {}, "User ", named(user ?? "")), spend.user]);
  return rows.map(([label, sums]) => h("div", { class: "account" }, h("h3", {}, label), h("p", {}, sentence(sums)), meter(sums)));
}

function sentence({ limit_micro_eur: limit, spent_micro_eur: spent, held_micro_eur: held, left_micro_eur: left, renewal }) {
  const under = held > 0 ? `, and ${money(held)} held for requests under way` : "";
  const until = renewal?.until ? ` It renews on ${date(renewal.until, "")}.` : "";
  if (limit === null) return `${money(spent)} spent${under}. There is no limit.${until}`;
  return `${money(left)} left of ${money(limit)}: ${money(spent)} spent${under}.${until}`;
}

const meter = ({ limit_micro_eur: limit, spent_micro_eur: spent, held_micro_eur: held }) =>
  limit === null ? [] : h("meter", { min: 0, max: Math.max(limit, 1), value: Math.min(spent + held, limit), high: limit * 0.9, optimum: 0, "aria-label": "Part of the budget that is spent" });

/** Keys as a table, and the command that makes one. */
function keys(list) {
  const titles = ["Key", "Label", "User", "Scopes", "Made", "Expires", "Last used"];
  const row = (key) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, named(key.key_id)),
      h("td", {}, key.label || key.name ? named(key.label ?? key.name) : ""),
      h("td", {}, key.user ? named(key.user) : ""),
      h("td", {}, key.scopes.join(", ")),
      ["created_at", "expires_at", "last_used_at"].map((time) => h("td", {}, date(key[time], "never"))),
    );
  return [
    h("p", { class: "muted" }, "Keys are made on the server's command line, and shown once:"),
    h("pre", { tabindex: "0" }, h("code", {}, "python -m state key create --org NAME --scopes all")),
    list.length
      ? h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Keys as a table" }, h("table", {}, h("caption", { class: "visually-hidden" }, "Keys"), h("thead", {}, h("tr", {}, titles.map((text) => h("th", { scope: "col" }, text)))), h("tbody", {}, list.map(row))))
      : h("p", { class: "note" }, "Your key may see no keys."),
  ];
}

customElements.define("usage-view", UsageView);

export const element = () => document.createElement("usage-view");
