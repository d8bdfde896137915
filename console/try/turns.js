// Turns of a conversation on the page: text as it comes, thoughts, tokens by their probability, and calls of tools.
import { h, replace, visible } from "../dom.js";
import { round, table } from "./drawing.js";

const NAMES = { user: "You", system: "System", tool: "Tool" };
const STEPS = [0.95, 0.8, 0.5, 0.2];
const SHOWN = 400;

/** A turn of `role`. */
export class Turn {
  constructor(role, content = "") {
    this.text = h("div", { class: "text", dir: "auto" }, content);
    this.element = h("article", { class: `turn ${role}` }, h("h3", {}, NAMES[role] ?? "Model"), this.text);
    this.answer = { content: "", reasoning: "", calls: [], logprobs: [] };
  }

  /** Takes a `delta` of a stream with its log probabilities. */
  take({ content, reasoning_content: reasoning, tool_calls: calls = [] }, logprobs) {
    if (reasoning) this.#think(reasoning);
    if (content) this.answer.content += content;
    for (const call of calls ?? []) this.#call(call);
    const tokens = logprobs?.content ?? [];
    this.answer.logprobs.push(...tokens);
    if (tokens.length) this.text.append(...tokens.map(shaded));
    else if (content) this.text.append(content);
  }

  #think(text) {
    if (!this.thoughts) {
      this.thoughts = h("p", { class: "thoughts", dir: "auto" });
      this.text.before(h("details", {}, h("summary", {}, "Thoughts"), this.thoughts));
    }
    this.thoughts.append(text);
    this.answer.reasoning += text;
  }

  // A call comes in pieces: the first has its id and name, the others more of its arguments.
  #call({ index, id, type, function: { name, arguments: part } = {} }) {
    const call = (this.answer.calls[index] ??= { id: "", type: "function", function: { name: "", arguments: "" } });
    Object.assign(call, id && { id }, type && { type });
    call.function.name += name ?? "";
    call.function.arguments += part ?? "";
  }

  /** Shows what is known once the answer is whole: calls with a field for the result of each, probabilities. */
  end(facts) {
    const { calls, logprobs } = this.answer;
    this.results = calls.map((call) => [call.id, h("textarea", { rows: 2, "aria-label": `Result of ${visible(call.function.name)}` })]);
    const shown = calls.map(({ function: { name, arguments: text } }, index) => h("div", { class: "tool-call" },
      h("p", {}, "calls ", h("code", {}, visible(name))), h("pre", { class: "code", dir: "auto" }, text),
      h("label", { class: "entry" }, "Result to send back with the next message", this.results[index][1])));
    const notes = [...shown, ...(logprobs.length ? probabilities(logprobs) : []), facts];
    this.element.append(...notes);
    if (!this.answer.content && !calls.length) replace(this.text, h("span", { class: "muted" }, "an empty answer"));
  }

  /** What the next request says of this turn, results of tools after it. */
  messages() {
    const { content, calls } = this.answer;
    const results = (this.results ?? []).map(([id, { value }]) => ({ role: "tool", tool_call_id: id, content: value }));
    return [{ role: "assistant", content, ...(calls.length && { tool_calls: calls }) }, ...results];
  }
}

function shaded({ token, logprob }) {
  const share = Math.exp(logprob);
  const step = STEPS.findIndex((least) => share >= least);
  return h("span", { class: `token p${step < 0 ? STEPS.length : step}`, title: `${round(share * 100, 1)} %` }, token);
}

function probabilities(logprobs) {
  const words = (token) => visible(JSON.stringify(token).slice(1, -1));
  const percent = (logprob) => `${round(Math.exp(logprob) * 100, 1)} %`;
  const rows = logprobs.slice(0, SHOWN).map(({ token, logprob, top_logprobs: others = [] }) => [
    words(token), percent(logprob), others.filter((other) => other.token !== token).map((other) => `${words(other.token)} ${percent(other.logprob)}`).join(", "),
  ]);
  const legend = h("p", { class: "row shades" }, "Probability of a token: ", [...STEPS.map((least) => `from ${least * 100} %`), "less"].map((text, step) => h("span", { class: `token p${step}` }, text)));
  return [legend, h("details", {}, h("summary", {}, "Probabilities as a table"), table("Tokens", ["token", "probability", "others"], rows))];
}
