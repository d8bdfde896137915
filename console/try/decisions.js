// The panel of POST /decisions: how likely each allowed answer is, as bars, and what a threshold would decide.
import { h, replace, visible } from "../dom.js";
import { bar, round, table } from "./drawing.js";
import { Mistake, present } from "./form.js";
import { pairs, priced } from "./reply.js";
import { list } from "./sources.js";

const TYPES = [["choice", "one of several options"], ["score", "a level of a scale"], ["binary", "true or false"]];
const OPTIONS = "billing: invoices, payments and prices\ndelivery: parcels and their way\nother";

const QUESTIONS = {
  choice: (instructions, options) => ({ type: "choice", instructions, options: options.map(optionOf) }),
  score: (instructions, levels) => ({ type: "score", instructions, levels }),
  binary: (instructions, [yes, no]) => ({ type: "binary", instructions, true_description: yes ?? "", false_description: no ?? "" }),
};

function optionOf(line) {
  const [, id, description] = /^([^:]*)(?::\s*(.*))?$/.exec(line);
  return present({ id: id.trim(), description: description || undefined });
}

export const decisions = {
  name: "decisions",
  title: "Decisions",
  about: "Says how likely a model finds each of the answers that you allow. It writes no text.",
  verb: "Decide",
  fields: [
    { name: "model", label: "Model", kind: "choice", options: decisionModels },
    { name: "preset", label: "Questions", kind: "choice", options: presets },
    { name: "state", label: "What is judged: a text, or JSON", kind: "text", rows: 3, value: "My invoice is wrong, and nobody answers.", wide: true },
    { name: "type", label: "Kind of answer", kind: "choice", options: () => TYPES },
    { name: "instructions", label: "Question", kind: "line", value: "What is this about?" },
    { name: "options", label: "Answers, one a line, perhaps with a colon and a description", kind: "text", as: "lines", rows: 4, value: OPTIONS, wide: true },
    { name: "order", label: "Read the options in both orders, which costs twice", kind: "switch", more: true },
  ],
  prepare(desk) {
    const own = ["type", "instructions", "options"].map((name) => desk.form.control(name).closest(".entry"));
    desk.form.control("preset").addEventListener("input", ({ target }) => own.forEach((field) => (field.hidden = target.value !== "")));
  },
  request({ model, preset, state, type, instructions, options, order }) {
    if (!state) throw new Mistake("What is judged: write something.");
    const questions = preset ? undefined : { question: QUESTIONS[type](instructions ?? "", options) };
    return { path: "v1/decisions", json: present({ state: parsed(state), model, preset, questions, order: order ? "both" : undefined }) };
  },
  async show({ answers, model, usage }, values, desk) {
    const asked = this.request(values).json.questions ?? (await pack(values.preset)).questions;
    replace(desk.output, decided(answers, asked), pairs([
      ["read by", `${visible(model.runtime)}, ${visible(model.via)}`], ["run by", `${visible(model.operator)}, ${visible(model.country)}`],
    ]));
    const entry = await list("v1/decisions/models").then(({ data }) => data.find(({ id }) => id === model.id), () => null);
    const cost = priced(entry, { input_tokens: usage.input_tokens, questions: usage.forward_passes });
    const words = Object.values(answers).map((answer) => visible(likeliest(answer)[0])).join(", ");
    return `Most likely: ${words}. ${usage.input_tokens} tokens${cost ? `, ${cost}` : ""}.`;
  },
};

async function decisionModels() {
  const { data } = await list("v1/decisions/models");
  return [["", "the default one"], ...data.map(({ id }) => [id, id])];
}

async function presets() {
  const { data } = await list("v1/decisions/presets");
  return [["", "your own, below"], ...data.map(({ id, title }) => [id, `${title} (${id})`])];
}

const pack = async (id) => (await list("v1/decisions/presets")).data.find((preset) => preset.id === id);

// Text that begins like JSON and is JSON goes as JSON; anything else is text.
function parsed(text) {
  if (!/^\s*[[{]/.test(text)) return text;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

const likeliest = ({ probabilities }) => Object.entries(probabilities).reduce((best, entry) => (entry[1] > best[1] ? entry : best));

/** The bars of all answers under one slider of the threshold, which decides anew as it moves. */
function decided(answers, questions) {
  const slider = h("input", { type: "range", id: "threshold", min: 0, max: 1, step: 0.01, value: 0.8 });
  const shown = h("output", { for: "threshold" });
  const place = h("div", {});
  const update = () => {
    const threshold = Number(slider.value);
    shown.textContent = `${Math.round(threshold * 100)} %`;
    replace(place, Object.entries(answers).map(([name, answer]) => answerOf(name, answer, questions[name], threshold)));
  };
  slider.addEventListener("input", update);
  update();
  return [h("div", { class: "row" }, h("label", { for: "threshold" }, "Decide from"), slider, shown), place];
}

function answerOf(name, answer, question, threshold) {
  const words = (label) => visible(question?.type === "score" ? (question.levels[Number(label)] ?? label) : label);
  const rows = Object.entries(answer.probabilities).map(([label, share]) => [words(label), bar(share, { mark: threshold }), `${round(share * 100, 1)} %`]);
  const reasons = withheld(answer, threshold);
  const verdict = reasons.length ? `Withheld: ${reasons.join(", ")}.` : `Decided: ${words(likeliest(answer)[0])}.`;
  const { label_mass: mass } = answer.diagnostics;
  return [
    h("h3", {}, visible(question?.instructions ?? name)),
    table("Probability of each answer", ["answer", "", "probability"], rows, { hideCaption: true }),
    h("p", { class: reasons.length ? "verdict" : "verdict good" }, verdict),
    h("p", { class: "muted" }, `Mass on the answers ${round(mass)}, entropy ${round(answer.normalized_entropy)}; ${visible(answer.calibration.status)}.`),
  ];
}

// What the server would withhold under the policy `threshold` at this threshold.
function withheld(answer, threshold) {
  const theirs = answer.abstain_reasons.filter((reason) => ["low_label_mass", "undecided_option"].includes(reason));
  return [...(answer.max_probability < threshold ? ["below the threshold"] : []), ...theirs.map((reason) => visible(reason.replaceAll("_", " ")))];
}
