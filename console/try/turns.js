// Turns of a conversation on the page: text as it comes, thoughts, tokens by their probability, and calls of tools.
import { h, visible } from "../dom.js";
import { folded, round, table } from "../parts.js";

const STEPS = [0.95, 0.8, 0.5, 0.2, 0];
const SHOWN = 400;
const percent = (logprob) => `${round(Math.exp(logprob) * 100, 1)} %`;

/** A turn of `role`, `user` or `assistant`; `content` and `calls` are what it says so far. */
export class Turn {
  calls = [];
  #logprobs = [];
  #results = [];

  constructor(role, content = "") {
    this.role = role;
    this.content = content;
    this.text = h("div", { class: "text", dir: "auto" }, content);
    this.element = h("article", { class: `turn ${role}` }, h("h3", {}, role === "user" ? "You" : "Model"), this.text);
  }

  /** Takes a `delta` of a stream with its log probabilities. */
  take({ content, reasoning_content: reasoning, tool_calls: calls }, logprobs) {
    if (reasoning) this.#think(reasoning);
    for (const call of calls ?? []) this.#call(call);
    this.content += content ?? "";
    const tokens = logprobs?.content ?? [];
    this.#logprobs.push(...tokens);
    this.text.append(...(tokens.length ? tokens.map(shaded) : [content ?? ""]));
  }

  #think(text) {
    if (!this.thoughts) {
      this.thoughts = h("p", { class: "thoughts", dir: "auto" });
      this.text.before(folded("Thoughts", this.thoughts));
    }
    this.thoughts.append(text);
  }

  // A call comes in pieces: the first has its id and name, the others more of its arguments.
  #call({ index, id, function: { name = "", arguments: part = "" } }) {
    const call = (this.calls[index] ??= { id, type: "function", function: { name: "", arguments: "" } });
    call.function.name += name ?? "";
    call.function.arguments += part ?? "";
  }

  /** Shows what is known once the answer is whole: calls with a field for the result of each, probabilities, facts. */
  end(facts) {
    this.#results = this.calls.map(() => h("textarea", { rows: 2 }));
    const calls = this.calls.map(({ function: { name, arguments: text } }, index) => [
      h("p", {}, "calls ", h("code", {}, visible(name))),
      h("pre", { dir: "auto" }, text),
      h("label", { class: "entry" }, `Result of ${visible(name)}, sent with the next message`, this.#results[index]),
    ]);
    this.element.append(...calls.flat(), ...(this.#logprobs.length ? probabilities(this.#logprobs) : []), facts);
  }

  /** What the next request says of this turn, results of tools after it. */
  messages() {
    const { role, content, calls } = this;
    const results = calls.map(({ id }, index) => ({ role: "tool", tool_call_id: id, content: this.#results[index].value }));
    return [{ role, content, ...(calls.length && { tool_calls: calls }) }, ...results];
  }
}

function shaded({ token, logprob }) {
  return h("span", { class: `p${STEPS.findIndex((least) => Math.exp(logprob) >= least)}`, title: percent(logprob) }, token);
}

function probabilities(logprobs) {
  const words = (token) => visible(JSON.stringify(token).slice(1, -1));
  const rows = logprobs.slice(0, SHOWN).map(({ token, logprob, top_logprobs: others = [] }) => [
    words(token), percent(logprob), others.filter((other) => other.token !== token).map((other) => `${words(other.token)} ${percent(other.logprob)}`).join(", "),
  ]);
  const shades = STEPS.map((least, step) => h("span", { class: `p${step}` }, least ? `from ${least * 100} %` : "less"));
  return [h("p", { class: "row shades" }, "Probability: ", shades), folded("Probabilities as a table", table("Tokens", ["token", "probability", "others"], rows))];
}
