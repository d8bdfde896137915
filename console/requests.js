// View `requests`: the organisation's last requests, filters, and one of them as a waterfall.

import { read } from "./api.js";
import { h, keep, named, replace, set, write } from "./dom.js";
import { clock, duration, moment } from "./format.js";
import { waterfall } from "./waterfall.js";

export const name = "requests";
export const title = "Requests";

const PAGE = 50;
const MOST = 500;
const OUTCOMES = { "": "all", ok: "ok", refused: "refused", failed: "failed", left: "client left" };

class RequestsView extends HTMLElement {
  #model = h("input", { id: "by-model", list: "models", autocomplete: "off", spellcheck: "false", placeholder: "all" });
  #outcome = h("select", { id: "by-outcome" }, Object.entries(OUTCOMES).map(([value, label]) => h("option", { value }, label)));
  #id = h("input", { id: "by-id", autocomplete: "off", spellcheck: "false", placeholder: "x-request-id of a reply" });
  #reads = h("input", { type: "checkbox", onChange: () => this.#draw() });
  #known = h("datalist", { id: "models" });
  #rows = h("tbody");
  #table = h("div", { class: "scroll" }, h("table", { class: "requests" }, h("caption", { class: "visually-hidden" }, "Requests, newest first"), head(), this.#rows));
  #status = h("p", { class: "muted", role: "status" });
  #fault = h("p", { class: "error", role: "alert" });
  #more = h("button", { class: "button quiet", type: "button", onClick: () => this.#load(true) }, "Older");
  #detail = h("section", { class: "detail", "aria-live": "off" });
  #requests = [];
  #cursor = null;
  #ending = new AbortController();

  connectedCallback() {
    replace(this, this.#forms(), this.#fault, this.#detail, this.#status, this.#table, this.#more, this.#known);
    this.#load();
    this.#listModels();
  }

  disconnectedCallback() {
    this.#ending.abort();
  }

  /** Opens the request that the hash names, or none. */
  async show(id) {
    for (const row of this.#rows.children) row.classList.toggle("chosen", row.itemKey === id);
    if (!id) return void replace(this.#detail);
    this.#id.value = id;
    try {
      const request = await read(`console/requests/${encodeURIComponent(id)}`, { signal: this.#ending.signal });
      replace(this.#detail, waterfall(request));
      this.#detail.querySelector("h2").focus();
    } catch (error) {
      if (error.name === "AbortError") return;
      replace(this.#detail, h("p", { class: "error", role: "alert" }, error.message));
    }
  }

  #forms() {
    const filter = (event) => (event.preventDefault(), this.#load());
    const search = (event) => {
      event.preventDefault();
      const id = this.#id.value.trim();
      if (location.hash === `#requests/${encodeURIComponent(id)}`) this.show(id);
      else location.hash = id ? `requests/${encodeURIComponent(id)}` : "requests";
    };
    this.#outcome.addEventListener("change", () => this.#load());
    this.#model.addEventListener("change", () => this.#load());
    return h(
      "div",
      { class: "bar" },
      h("form", { class: "row", role: "search", "aria-label": "One request", onSubmit: search }, field("Request id", this.#id), h("button", { class: "button" }, "Find")),
      h("form", { class: "row", "aria-label": "Filters", onSubmit: filter }, field("Model", this.#model), field("Outcome", this.#outcome), h("label", { class: "check" }, this.#reads, " Reads, too"), h("button", { class: "button quiet" }, "Refresh")),
    );
  }

  async #load(isMore = false) {
    const query = new URLSearchParams({ limit: PAGE });
    if (isMore && this.#cursor) query.set("before", this.#cursor);
    if (this.#model.value.trim()) query.set("model", this.#model.value.trim());
    if (this.#outcome.value) query.set("outcome", this.#outcome.value);
    try {
      const page = await read(`console/requests?${query}`, { signal: this.#ending.signal });
      this.#requests = isMore ? [...this.#requests, ...page.data] : page.data;
      this.#cursor = page.has_more ? page.next_cursor : null;
      write(this.#fault, "");
      this.#draw();
    } catch (error) {
      if (error.name !== "AbortError") write(this.#fault, error.message);
    }
  }

  #draw() {
    const requests = this.#requests.filter((request) => this.#reads.checked || !isRead(request)).slice(0, MOST);
    const unique = [...new Map(requests.map((request) => [request.request_id, request])).values()];
    keep(this.#rows, unique, (request) => request.request_id, row);
    const isFull = this.#requests.length >= MOST;
    this.#more.hidden = !this.#cursor || isFull;
    this.#table.hidden = unique.length === 0;
    write(this.#status, this.#sentence(unique.length, isFull));
  }

  #sentence(number, isFull) {
    if (isFull) return `The newest ${MOST} are shown. Filter, or find one by its id.`;
    if (number) return `${number} shown, newest first${this.#cursor ? "; there are older ones" : ""}.`;
    if (this.#model.value.trim() || this.#outcome.value) return "No request of the kept ones is like that. Clear the filters to see all.";
    if (this.#cursor) return "The newest ones only read, as this page does. There are older ones.";
    return "No request to a model has come yet. Send one from Try or with curl, then refresh.";
  }

  async #listModels() {
    const models = await read("v1/models", { signal: this.#ending.signal }).catch(() => ({ data: [] }));
    replace(this.#known, models.data.map((model) => h("option", { value: model.id })));
  }
}

// What pages and clients ask all the time, and no engine works for.
const isRead = (request) => request.method === "GET" && request.engine === null && request.outcome === "ok";

const field = (label, control) => h("div", {}, h("label", { class: "field", for: control.id }, label), control);

const head = () =>
  h("thead", {}, h("tr", {}, ["Time", "Model", "Route", "Outcome", "Took", "Waited"].map((text, index) => h("th", { scope: "col", class: index > 3 ? "number" : null }, text))));

function row(request) {
  const { parts } = request;
  const waitMs = parts.queue + parts.load;
  const link = h("a", { href: `#requests/${encodeURIComponent(request.request_id)}`, title: moment(request.time_ms) }, clock(request.time_ms));
  const tr = h(
    "tr",
    {},
    h("td", {}, link),
    h("td", {}, request.model === null ? h("span", { class: "muted" }, "none") : named(request.model)),
    h("td", {}, h("code", {}, `${request.method} ${request.route}`)),
    h("td", {}, h("span", { class: `outcome ${request.outcome}` }, OUTCOMES[request.outcome] ?? request.outcome), ` ${request.status ?? ""}`),
    h("td", { class: "number" }, duration(request.duration_ms)),
    h("td", { class: "number" }, duration(waitMs)),
  );
  set(tr, "data-outcome", request.outcome);
  return tr;
}

customElements.define("requests-view", RequestsView);

export const element = () => document.createElement("requests-view");
