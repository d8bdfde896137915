// View `requests`: the organisation's last requests, filters, and one of them as a waterfall.

import { h, keep, named, replace, write } from "./dom.js";
import { clock, duration, moment } from "./format.js";
import { alert, button, field, menu, ReadingView, table, tableRow } from "./parts.js";
import { waterfall } from "./waterfall.js";

export const name = "requests";
export const title = "Requests";

const PAGE = 50;
const OUTCOMES = { "": "all", ok: "ok", refused: "refused", failed: "failed", left: "client left" };
const TITLES = ["Time", "Model", "Route", "Outcome", "Took", "Waited"];
const NUMBERS = [4, 5];

const text = (id, placeholder, props) => h("input", { id, placeholder, autocomplete: "off", spellcheck: "false", ...props });

class RequestsView extends ReadingView {
  #model = text("by-model", "all", { list: "models", onChange: () => this.#load() });
  #outcome = menu({ id: "by-outcome", onChange: () => this.#load() }, Object.entries(OUTCOMES));
  #id = text("by-id", "x-request-id of a reply");
  #reads = h("input", { type: "checkbox", onChange: () => this.#draw() });
  #known = h("datalist", { id: "models" });
  #table = table("Requests, newest first", TITLES, [], NUMBERS);
  #rows = this.#table.querySelector("tbody");
  #status = h("p", { class: "muted", role: "status" });
  #older = button("Older", () => this.#load(this.#page.next_cursor));
  #detail = h("section", { class: "card detail", "aria-live": "off" });
  #page = { data: [] };

  connectedCallback() {
    this.#table.classList.add("requests");
    replace(this, this.#forms(), this.fault, this.#detail, this.#status, this.#table, this.#older, this.#known);
    this.#load();
    this.read("v1/models", (models) => replace(this.#known, models.data.map(({ id }) => h("option", { value: id }))));
  }

  async show(id) {
    for (const row of this.#rows.children) row.classList.toggle("chosen", row.itemKey === id);
    if (!id) return replace(this.#detail);
    this.#id.value = id;
    const open = (request) => replace(this.#detail, waterfall(request)).querySelector("h2").focus();
    const fail = (message) => write(replace(this.#detail, alert()).firstChild, message);
    return this.read(`console/requests/${encodeURIComponent(id)}`, open, fail);
  }

  #forms() {
    const filter = (event) => (event.preventDefault(), this.#load());
    const search = (event) => {
      event.preventDefault();
      const id = this.#id.value.trim();
      const hash = id ? `#requests/${encodeURIComponent(id)}` : "#requests";
      if (location.hash === hash) this.show(id);
      else location.hash = hash;
    };
    const go = (words, kind) => h("button", { class: `button ${kind}` }, words);
    const reads = h("label", { class: "check" }, this.#reads, " Reads, too");
    return h("div", { class: "bar" },
      h("form", { class: "row", role: "search", "aria-label": "One request", onSubmit: search }, field("Request id", this.#id), go("Find", "")),
      h("form", { class: "row", "aria-label": "Filters", onSubmit: filter }, field("Model", this.#model), field("Outcome", this.#outcome), reads, go("Refresh", "quiet")));
  }

  /** Shows the newest requests, or those before the one with the id `before`. */
  #load(before = "") {
    const filters = { before, model: this.#model.value.trim(), outcome: this.#outcome.value };
    const query = new URLSearchParams({ limit: PAGE, ...Object.fromEntries(Object.entries(filters).filter(([, value]) => value)) });
    return this.read(`console/requests?${query}`, (page) => {
      this.#page = page;
      this.#draw();
    });
  }

  #draw() {
    const { data, has_more: hasMore } = this.#page;
    const requests = data.filter((request) => this.#reads.checked || !isRead(request));
    keep(this.#rows, requests, (request) => request.request_id, line);
    this.#older.hidden = !hasMore;
    this.#table.hidden = requests.length === 0;
    write(this.#status, this.#sentence(requests.length, hasMore));
  }

  #sentence(number, hasMore) {
    if (number) return `${number} shown${hasMore ? "; there are older ones" : ""}.`;
    if (this.#model.value.trim() || this.#outcome.value) return "No request of the kept ones is like that. Clear the filters to see all.";
    if (hasMore) return "These only read, as this page does. There are older ones.";
    return "No request to a model has come yet. Send one from Try or with curl, then refresh.";
  }
}

// What pages and clients ask all the time, and no engine works for.
const isRead = (request) => request.method === "GET" && request.engine === null && request.outcome === "ok";

function line({ request_id: id, time_ms: timeMs, parts, model, method, route, outcome, status, duration_ms: tookMs }) {
  const cells = [
    h("a", { href: `#requests/${encodeURIComponent(id)}`, title: moment(timeMs) }, clock(timeMs)),
    model === null ? h("span", { class: "muted" }, "none") : named(model),
    h("code", {}, `${method} ${route}`),
    [h("span", { class: `outcome ${outcome}` }, OUTCOMES[outcome] ?? outcome), ` ${status}`],
    duration(tookMs),
    duration(parts.queue + parts.load),
  ];
  const row = tableRow(cells, NUMBERS);
  row.dataset.outcome = outcome;
  return row;
}

customElements.define("requests-view", RequestsView);
