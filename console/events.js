// The feed of the graph: one stream of snapshots for the whole page, which recovers by itself.

import { events, Fault, session } from "./api.js";
import { Timeline } from "./timeline.js";

const SILENCE_S = 40; // the server writes a comment every 15 s
const FIRST_WAIT_S = 0.5;
const LONGEST_WAIT_S = 15;
const HIDDEN_S = 60;

class Feed extends EventTarget {
  /** Engines by name, as the server says them, each with its `timeline`. */
  engines = new Map();
  /** Traffic of the organisation, and of everybody where the key may see it. */
  organisation = null;
  everybody = null;
  /** `idle`, `connecting`, `live`, `lost` (and tries again), `refused` (the server does not want this key). */
  connection = "idle";
  fault = null;
  #skewMs = 0;
  #lostMs = null;
  #running = null;
  /** Tries now, instead of after the wait. */
  hurry = () => {};

  /** The server's clock, in ms. It stands still while nothing is known of the server. */
  now() {
    return this.#lostMs ?? Date.now() + this.#skewMs;
  }

  /** Begins, where there is a key and it has not begun. */
  start() {
    if (this.#running || !session.key) return;
    this.#running = new AbortController();
    this.#run(this.#running.signal);
  }

  stop() {
    this.#running?.abort();
    this.#running = null;
    this.hurry();
  }

  /** Drops what another key has seen, and begins with the session's. */
  restart() {
    this.stop();
    this.engines.clear();
    this.organisation = this.everybody = null;
    this.#say("idle");
    this.start();
  }

  async #run(signal) {
    for (let failures = 0; !signal.aborted; failures += 1) {
      if (this.connection === "idle") this.#say("connecting");
      try {
        for await (const event of this.#stream(signal)) {
          failures = 0;
          this.#take(event);
        }
      } catch (fault) {
        if (signal.aborted) return;
        if (fault.status === 401 || fault.status === 403 || fault.status === 404) {
          this.#running = null;
          return this.#say("refused", fault);
        }
        this.#say("lost", fault);
      }
      if (signal.aborted) return;
      if (this.connection === "live") this.#say("lost");
      await this.#wait(failures);
    }
  }

  #stream(signal) {
    return events("console/events", { signal, idleS: SILENCE_S });
  }

  // Jitter keeps the pages of a server that comes back from all asking at once.
  #wait(failures) {
    const seconds = Math.min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** failures) * (0.5 + Math.random() / 2);
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, seconds * 1000);
      this.hurry = () => (clearTimeout(timer), resolve());
    });
  }

  #take({ data }) {
    const news = JSON.parse(data);
    if (news.error) throw new Fault(news.error.message, news.error);
    if (news.time_ms) this.#skewMs = news.time_ms - Date.now();
    const known = this.engines;
    this.engines = new Map(news.engines.map(({ bands, ...fields }) => [fields.name, { ...fields, timeline: new Timeline(bands) }]));
    const changes = [...this.engines.values()]
      .filter(({ name, state }) => known.has(name) && known.get(name).state !== state)
      .map(({ name, state }) => ({ name, from: known.get(name).state, to: state }));
    Object.assign(this, { organisation: news.organisation, everybody: news.everybody });
    this.dispatchEvent(new CustomEvent("change", { detail: { changes } }));
    this.#say("live");
  }

  #say(connection, fault = null) {
    if (this.connection === connection && this.fault?.message === fault?.message) return;
    this.#lostMs = connection === "lost" ? this.now() : null;
    this.connection = connection;
    this.fault = fault;
    this.dispatchEvent(new Event("connection"));
  }
}

export const feed = new Feed();

// Browsers open six connections to a server for all tabs together, so a page that nobody sees gives its own back.
let hiding = 0;
document.addEventListener("visibilitychange", () => {
  clearTimeout(hiding);
  if (document.hidden) hiding = setTimeout(() => feed.stop(), HIDDEN_S * 1000);
  else {
    feed.start();
    feed.hurry();
  }
});
addEventListener("online", () => feed.hurry());
session.addEventListener("change", () => feed.restart());
feed.start();
