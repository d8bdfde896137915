// The view `try`: a panel for each route, of which one is shown. What stands in the others stays until the page is left.
import { session } from "../api.js";
import { h, replace, set } from "../dom.js";
import { chat } from "./chat.js";
import { decisions } from "./decisions.js";
import { design } from "./design.js";
import { documentation } from "./documentation.js";
import { embeddings } from "./embeddings.js";
import { Desk } from "./panel.js";
import { rerank } from "./rerank.js";
import { forgetLists } from "./sources.js";
import { speech } from "./speech.js";
import { transcription } from "./transcription.js";

export const PANELS = [chat, speech, transcription, design, decisions, embeddings, rerank, documentation];

const desks = new Map();

// Another key may belong to another organisation, which has no business with what this one got.
session.addEventListener("change", () => {
  for (const desk of desks.values()) desk.stop();
  desks.clear();
  forgetLists();
});

class TryView extends HTMLElement {
  #place = h("div", {});
  #links = PANELS.map(({ name, title }) => h("a", { href: `#try/${name}` }, title));

  connectedCallback() {
    replace(this, h("nav", { class: "panels", "aria-label": "Routes" }, this.#links), this.#place);
  }

  show(name) {
    const panel = PANELS.find((candidate) => candidate.name === name) ?? PANELS[0];
    this.#links.forEach((link, index) => set(link, "aria-current", PANELS[index] === panel ? "true" : null));
    if (!desks.has(panel.name)) desks.set(panel.name, new Desk(panel));
    const { element } = desks.get(panel.name);
    if (this.#place.firstChild !== element) replace(this.#place, element);
  }
}

customElements.define("try-view", TryView);

export const name = "try";
export const title = "Try";
