// The panel of POST /decisions: how likely each allowed answer is, as bars, and what a threshold would decide.
import { h, replace, visible } from "../dom.js";
import { bar, joined, muted, round, row, table } from "../parts.js";
import { Mistake, present } from "./form.js";
import { priced } from "./reply.js";
import { list } from "./sources.js";

const [MODELS, PRESETS] = ["v1/decisions/models", "v1/decisions/presets"];
const TYPES = [["choice", "one of several options"], ["score", "a level of a scale"], ["binary", "true or false"]];
const OPTIONS = "billing: invoices, payments and prices\ndelivery: parcels and their way\nother";

const QUESTIONS = {
  choice: (options) => ({ options: options.map(optionOf) }),
  score: (levels) => ({ levels }),
  binary: ([yes = "", no = ""]) => ({ true_description: yes, false_description: no }),
};

function optionOf(line) {
  const [id, ...rest] = line.split(":");
  return present({ id: id.trim(), description: rest.join(":").trim() });
}

export const decisions = {
  name: "decisions",
  title: "Decisions",
  about: "Says how likely a model finds each of the answers that you allow. It writes no text.",
  verb: "Decide",
  fields: [
    { name: "model", label: "Model", kind: "choice", options: async () => [["", "the default one"], ...(await list(MODELS)).data.map(({ id }) => [id, id])] },
    { name: "preset", label: "Questions", kind: "choice", options: async () => [["", "your own, below"], ...(await list(PRESETS)).data.map(({ id, title }) => [id, `${title} (${id})`])] },
    { name: "state", label: "What is judged: a text, or JSON", kind: "text", value: "My invoice is wrong, and nobody answers.", wide: true },
    { name: "type", label: "Kind of answer", kind: "choice", options: () => TYPES },
    { name: "instructions", label: "Question", kind: "line", value: "What is this about?" },
    { name: "options", label: "Answers, one a line, perhaps with a colon and a description", kind: "text", as: "lines", value: OPTIONS, wide: true },
    { name: "order", label: "Read the options in both orders, which costs twice", kind: "switch", more: true },
  ],
  prepare({ form }) {
    const own = ["type", "instructions", "options"].map((name) => form.control(name).closest(".entry"));
    form.control("preset").addEventListener("input", ({ target }) => own.forEach((field) => (field.hidden = target.value !== "")));
  },
  request({ model, preset, state, type, instructions = "", options, order }) {
    if (!state) throw new Mistake("What is judged: write something.");
    const questions = preset ? undefined : { question: { type, instructions, ...QUESTIONS[type](options) } };
    return { path: "v1/decisions", json: present({ state: parsed(state), model, preset, questions, order: order && "both" }) };
  },
  async show({ answers, model, usage }, values, desk) {
    const { questions } = values.preset ? (await list(PRESETS)).data.find(({ id }) => id === values.preset) : this.request(values).json;
    const runner = muted(`Read by ${visible(model.runtime)} (${visible(model.via)}), run by ${visible(model.operator)} (${visible(model.country)}).`);
    replace(desk.output, decided(answers, questions), runner);
    const entry = await list(MODELS).then(({ data }) => data.find(({ id }) => id === model.id), () => null);
    const cost = priced(entry, { input_tokens: usage.input_tokens, questions: usage.forward_passes });
    const best = Object.entries(answers).map(([name, answer]) => nameOf(questions[name], likeliest(answer)));
    return `Most likely: ${best.join(", ")}. ${joined(`${usage.input_tokens} tokens`, cost)}.`;
  },
};

// Text that is JSON goes as JSON; anything else is text.
function parsed(text) {
  try {
    return /^\s*[[{]/.test(text) ? JSON.parse(text) : text;
  } catch {
    return text;
  }
}

const likeliest = ({ probabilities }) => Object.entries(probabilities).reduce((best, entry) => (entry[1] > best[1] ? entry : best))[0];

const nameOf = (question, label) => visible(question.levels?.[Number(label)] ?? label);

/** The bars of all answers under one slider of the threshold, which decides anew as it moves. */
function decided(answers, questions) {
  const slider = h("input", { type: "range", id: "threshold", min: 0, max: 1, step: 0.01, value: 0.8 });
  const shown = h("output", { for: "threshold" });
  const place = h("div", {});
  const update = () => {
    shown.textContent = `${Math.round(slider.value * 100)} %`;
    replace(place, Object.entries(answers).map(([name, answer]) => answerOf(answer, questions[name], Number(slider.value))));
  };
  slider.addEventListener("input", update);
  update();
  return [row(h("label", { for: "threshold" }, "Threshold"), slider, shown), place];
}

function answerOf(answer, question, threshold) {
  const rows = Object.entries(answer.probabilities).map(([label, share]) => [nameOf(question, label), bar(share, { mark: threshold }), `${round(share * 100, 1)} %`]);
  const reasons = withheld(answer, threshold);
  const verdict = reasons.length ? `Withheld: ${reasons.join(", ")}.` : `Decided: ${nameOf(question, likeliest(answer))}.`;
  return [
    table(visible(question.instructions), ["answer", "", "probability"], rows),
    h("p", { class: reasons.length ? "verdict" : "verdict good" }, verdict),
    muted(`Mass on the answers ${round(answer.diagnostics.label_mass)}, entropy ${round(answer.normalized_entropy)}; ${answer.calibration.status}.`),
  ];
}

// What the server would withhold under the policy `threshold` at this threshold.
function withheld({ max_probability: most, abstain_reasons: reasons }, threshold) {
  const theirs = reasons.filter((reason) => ["low_label_mass", "undecided_option"].includes(reason));
  return [...(most < threshold ? ["below_threshold"] : []), ...theirs].map((reason) => reason.replaceAll("_", " "));
}
