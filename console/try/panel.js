// The element of a panel: its form, one run at a time with a way to stop it, what came, and the call to copy.
import { h, replace, write } from "../dom.js";
import { duration } from "../format.js";
import { button, folded, muted, row } from "../parts.js";
import { curl, inJavaScript, inPython } from "./code.js";
import { Form, Mistake } from "./form.js";
import { facts, failure, send } from "./reply.js";

/**
 * What a panel works with: `{name, title, about, verb, fields}`, `request(values, desk)` as for `code.js`, and `run(desk,
 * values)`, or `show(reply, values, desk)` where one request with a JSON reply does it. Both give what is to be said.
 */
export class Desk {
  #controller = null;

  constructor(panel) {
    const { name, title, about, verb } = panel;
    this.panel = panel;
    this.form = new Form(panel.fields, `try-${name}`);
    this.output = h("div", { class: "output" });
    this.replies = h("div", {});
    this.status = h("p", { class: "status", role: "status" });
    this.progress = muted();
    this.runButton = h("button", { class: "button", type: "submit" }, verb);
    this.stopButton = button("Stop", () => this.stop());
    this.buttons = row(this.runButton, this.stopButton);
    this.code = callToCopy(() => panel.request(this.form.values(), this));
    const onSubmit = (event) => (event.preventDefault(), this.run());
    const form = h("form", { onSubmit, onInput: () => this.code.refresh() }, this.form.element, this.buttons);
    const parts = [h("h2", { id: `try-${name}` }, title), muted(about), form, this.status, this.progress, this.output, this.replies];
    this.element = h("section", { class: "card panel", "aria-labelledby": `try-${name}` }, parts, this.code.element);
    this.#busy(false);
    panel.prepare?.(this);
  }

  get signal() {
    return this.#controller.signal;
  }

  stop() {
    this.#controller?.abort();
  }

  /** Says something once, also to a screen reader. */
  say(text) {
    write(this.status, text);
  }

  /** Tells how far a run is: for the eye alone, because it changes often. */
  tell(text) {
    write(this.progress, text);
  }

  /** Runs the panel with what stands in its form, or `work` in its place. */
  async run(work = (values) => (this.panel.run ? this.panel.run(this, values) : this.#ask(values))) {
    if (this.#controller) return;
    this.#controller = new AbortController();
    this.#busy(true);
    this.say("Working …");
    replace(this.replies);
    const startedMs = performance.now();
    try {
      this.say((await work(this.form.values())) ?? `Done in ${duration(performance.now() - startedMs)}.`);
    } catch (error) {
      this.#fail(error, work);
    } finally {
      this.#controller = null;
      this.tell("");
      this.#busy(false);
      this.code.refresh();
    }
  }

  #busy(isBusy) {
    this.runButton.disabled = isBusy;
    this.stopButton.disabled = !isBusy;
    this.output.setAttribute("aria-busy", isBusy);
  }

  #fail(error, work) {
    if (error.name === "AbortError") return this.say("Stopped.");
    const isMistake = error instanceof Mistake;
    this.say(isMistake ? error.message : `It failed: ${error.message}`);
    if (!isMistake) this.replies.append(failure(error, () => this.run(work)));
  }

  async #ask(values) {
    const reply = await this.call(this.panel.request(values, this));
    return this.panel.show(await reply.json(), values, this);
  }

  /** Sends `request` and shows the headers of its reply in `place`. */
  async call(request, place = this.replies) {
    const reply = await send(request, this.signal);
    place.append(facts(reply));
    return reply;
  }
}

const LANGUAGES = { curl, Python: inPython, JavaScript: inJavaScript };

/** An element, and `refresh`, which writes the call anew from `describe()`: a request, or texts by language. */
function callToCopy(describe) {
  let chosen = "curl";
  const code = h("code", {});
  const said = h("span", { class: "muted", role: "status" });
  const buttons = Object.keys(LANGUAGES).map((name) => button(name, () => choose(name)));
  const copy = button("Copy", () => put(code.textContent, said));
  const block = h("pre", { class: "code", tabindex: "0", role: "region", "aria-label": "The call" }, code);
  const element = folded("The same call to copy", row(buttons, copy, said), block);

  // A form that cannot be sent leaves the call of before: after a message of a chat, the one that was sent.
  const refresh = () => element.open && write(code, textOf(describe, chosen) ?? (code.textContent || "The form cannot be sent yet."));
  function choose(name) {
    chosen = name;
    write(code, "");
    for (const each of buttons) each.setAttribute("aria-pressed", each.textContent === name);
    write(said, "");
    refresh();
  }
  element.addEventListener("toggle", refresh);
  choose(chosen);
  return { element, refresh };
}

function textOf(describe, language) {
  try {
    const request = describe();
    return request.texts?.[language] ?? LANGUAGES[language](request);
  } catch {
    return null;
  }
}

async function put(text, said) {
  try {
    await navigator.clipboard.writeText(text);
    write(said, "Copied.");
  } catch {
    write(said, "The browser does not let this page copy; select the text.");
  }
}
