// View `graph`: every engine as it is now, kept up to date in place.

import { engineCard } from "./card.js";
import { h, keep, replace, write } from "./dom.js";
import { feed } from "./events.js";
import { count, plural } from "./format.js";
import { legend } from "./states.js";

export const name = "graph";
export const title = "Graph";

const TICK_S = 5;
const ANNOUNCE_S = 2;
/** What is worth a word to somebody who does not see the page: busy and ready alternate with every request. */
const isNotable = (state) => state !== "ready" && state !== "busy";

class GraphView extends HTMLElement {
  #cards = h("ul", { class: "cards", "aria-label": "Engines" });
  #summary = h("p", { class: "muted" });
  #traffic = h("dl", { class: "numbers" });
  #nothing = h("p", { class: "note" });
  #news = h("p", { class: "visually-hidden", role: "status" });
  #pending = new Map();
  #timers = [];

  connectedCallback() {
    replace(this, this.#summary, this.#traffic, this.#nothing, this.#cards, this.#news, key());
    feed.addEventListener("change", this);
    feed.addEventListener("connection", this);
    this.#timers = [setInterval(() => this.#draw(), TICK_S * 1000), setInterval(() => this.#announce(), ANNOUNCE_S * 1000)];
    this.#draw();
  }

  disconnectedCallback() {
    feed.removeEventListener("change", this);
    feed.removeEventListener("connection", this);
    for (const timer of this.#timers) clearInterval(timer);
  }

  handleEvent(event) {
    for (const change of event.detail?.changes ?? []) {
      if (isNotable(change.to) || isNotable(change.from)) this.#pending.set(change.name, change.to);
    }
    this.#draw();
  }

  #draw() {
    const engines = [...feed.engines.values()].sort(
      (one, other) => one.capability.localeCompare(other.capability) || one.name.localeCompare(other.name),
    );
    const nowMs = feed.now();
    keep(this.#cards, engines, (engine) => engine.name, engineCard, (card, engine) => card.update(engine, nowMs));
    this.#describe(engines);
  }

  #describe(engines) {
    const states = Map.groupBy(engines, (engine) => engine.state);
    const parts = [...states].map(([state, members]) => `${members.length} ${state}`);
    write(this.#summary, engines.length ? `${plural(engines.length, "engine")}: ${parts.join(", ")}.` : "");
    this.#nothing.hidden = engines.length > 0;
    write(
      this.#nothing,
      feed.connection === "live" ? "No model is set up in this profile, so there is no engine to show." : "Waiting for the server's first word.",
    );
    const rows = [["Your organisation", feed.organisation], ["All organisations", feed.everybody]].filter(([, traffic]) => traffic);
    keep(this.#traffic, rows, ([label]) => label, trafficRow, (node, [, traffic]) => write(node.lastElementChild, sentence(traffic)));
  }

  // Changes of two seconds are one announcement.
  #announce() {
    if (!this.#pending.size) return;
    write(this.#news, [...this.#pending].map(([engine, state]) => `${engine} is ${state}`).join(", "));
    this.#pending.clear();
  }
}

const trafficRow = ([label]) => h("div", {}, h("dt", {}, label), h("dd"));

const sentence = (traffic) =>
  `${plural(traffic.requests_per_minute, "request")} and ${plural(traffic.errors_per_minute, "error")} in the last minute, ${count(traffic.waiting)} waiting`;

const key = () => h("section", { "aria-labelledby": "legend" }, h("h2", { id: "legend" }, "What the shapes mean"), legend());

customElements.define("graph-view", GraphView);
