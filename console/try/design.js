// The panel of voice design: traits to order, the draft while it is made, its pitch, a listen, and adoption.
import { call, read } from "../api.js";
import { h, replace, svg, visible } from "../dom.js";
import { money, plural } from "../format.js";
import { button, figure, joined, muted, round, row, table } from "../parts.js";
import { Mistake, present } from "./form.js";
import { forgetLists, list } from "./sources.js";
import { reachable } from "./upload.js";

const DRAFTS = "v1/audio/voices/designs";
const POLL_MS = 1500;
const TRAITS = { timbre: "Timbre", character: "Character", tempo: "Tempo", use_case: "Use" };

const options = () => list("v1/audio/voices/design-options");
const choice = (name, label, pick, others = {}) => ({
  name, label, kind: "choice", ...others,
  options: async () => [...(others.first ?? []), ...pick(await options()).map(({ id, labels }) => [id, labels.en ?? id])],
});

export const design = {
  name: "design",
  title: "Voice design",
  about: "Orders a voice, measures its pitch, and lets you listen before you adopt it. A description can fill in the traits.",
  verb: "Order the voice",
  fields: [
    { name: "text", label: "Description, in German or English", kind: "text", rows: 2, value: "a warm, deep voice of an old man who tells stories", wide: true },
    choice("gender", "Gender", ({ genders }) => genders),
    { name: "age_years", label: "Age in years", kind: "number", value: 45, min: 16, max: 90 },
    choice("language", "Language", ({ languages }) => languages, { value: "en" }),
    ...Object.entries(TRAITS).map(([axis, label]) => choice(axis, label, ({ traits }) => traits[axis], { first: [["", "drawn at random"]] })),
    { name: "target_hz", label: "Pitch in Hz", kind: "number", min: 60, max: 400, more: true },
    { name: "instruct", label: "A description that replaces the traits", kind: "line", more: true },
    { name: "label", label: "Name", kind: "line", more: true },
  ],
  prepare(desk) {
    desk.output.classList.add("drafts");
    desk.buttons.prepend(button("Fill in from the description", () => desk.run((values) => suggested(desk, values))));
    desk.buttons.append(button("Earlier drafts", () => desk.run(() => listed(desk))));
  },
  request: ({ text: _, ...order }) => ({ path: DRAFTS, json: present(order) }),
  async run(desk, values) {
    if (!(await options()).available) throw new Mistake("No voice designer is set up here.");
    const place = h("article", { class: "card draft" });
    let draft = await (await desk.call(this.request(values))).json();
    desk.output.prepend(place);
    while (draft.status === "pending") {
      await show(draft, place, desk);
      desk.tell("The designer speaks and measures …");
      await pause(POLL_MS, desk.signal);
      draft = await read(`${DRAFTS}/${draft.id}`, { signal: desk.signal });
    }
    await show(draft, place, desk);
    const { status, error, measurements } = draft;
    if (status === "failed") return `It failed: ${error}`;
    return `The draft is ${status}: ${Math.round(measurements.f0_hz)} Hz, ${measurements.in_band ? "in" : "out of"} the band that was ordered.`;
  },
};

const pause = (ms, signal) => new Promise((resolve, reject) => {
  setTimeout(resolve, ms);
  signal.addEventListener("abort", () => reject(signal.reason), { once: true });
});

async function suggested(desk, { text }) {
  if (!text) throw new Mistake("Description: write what the voice should sound like.");
  const reply = await read(`${DRAFTS}/suggest`, { json: { text }, signal: desk.signal });
  for (const name of ["gender", "age_years", "language", ...Object.keys(TRAITS)]) desk.form.set(name, reply[name]);
  return [reply.reason, ...reply.hints].join(" ");
}

async function listed(desk) {
  const { data } = await read(DRAFTS, { signal: desk.signal });
  replace(desk.output, await Promise.all(data.slice(0, 12).map((draft) => show(draft, h("article", { class: "card draft" }), desk))));
  return data.length ? `${plural(data.length, "draft")}.` : "There are no drafts yet.";
}

/** Fills `place` with a draft: what was ordered, its pitch, its clip, and what can be done with it. */
async function show(draft, place, desk) {
  const { label, status, id, instruct, sample_url: sample, cost_micro_eur: cost, voice_slug: slug, error } = draft;
  const act = (path, method, said) => desk.run(async () => {
    await call(`${DRAFTS}/${id}${path}`, { method, signal: desk.signal });
    forgetLists("v1/audio/voices");
    await show(method === "POST" ? await read(`${DRAFTS}/${id}`) : { ...draft, status: "discarded", sample_url: null }, place, desk);
    return said;
  });
  const name = visible(label);
  replace(place,
    h("h3", {}, name),
    muted(joined(status, cost && `cost ${money(cost)}`, slug && `voice ${visible(slug)}`)),
    h("p", { class: "muted", dir: "auto" }, instruct),
    pitch(draft, (await options()).limits.attempts),
    sample && h("audio", { controls: true, src: reachable(sample), "aria-label": `Clip of ${name}` }),
    error && h("p", { class: "error" }, error),
    row(
      status === "ready" && button("Adopt", () => act("/adopt", "POST", "Adopted. After a reload the voice can be chosen under Speech.")),
      !["discarded", "failed"].includes(status) && button("Discard", () => act("", "DELETE", "Discarded."))));
  return place;
}

const SIZE = { width: 640, height: 148 };
const [LOWEST, HIGHEST] = [60, 400];
const TICKS = [60, 80, 100, 140, 200, 280, 400];
const [TOP, AXIS] = [34, 114];

// Pitch is heard in ratios, so the axis is logarithmic.
const x = (hz) => 20 + (Math.log(Math.min(Math.max(hz, LOWEST), HIGHEST) / LOWEST) / Math.log(HIGHEST / LOWEST)) * (SIZE.width - 40);
const line = (name, from, to, y1, y2) => svg("line", { class: name, x1: x(from), x2: x(to), y1, y2 });
const text = (hz, y, words) => svg("text", { x: x(hz), y, "text-anchor": "middle" }, words);
const hertz = (value) => (value ? `${round(value, 1)} Hz` : "–");

/** A figure of one draft, an answer of `GET /v1/audio/voices/designs/{id}`; `attempts` is how many there may be. */
function pitch({ band_hz: [from, to], target_hz: target, measurements }, attempts) {
  const { f0_hz: median, p25_hz: low, p75_hz: high, in_band: inBand, attempts_used: used } = measurements;
  const measured = median ? [
    line("quartiles", low, high, 64, 64),
    svg("circle", { class: inBand ? "median good" : "median", cx: x(median), cy: 64, r: 7 }),
    text(median, 98, `${Math.round(median)} Hz`),
  ] : text(155, 80, "not measured yet");
  const shapes = [
    svg("rect", { class: "ordered", x: x(from), width: x(to) - x(from), y: TOP, height: AXIS - TOP }),
    line("target", target, target, TOP, AXIS),
    text(target, 25, `ordered ${target} Hz`),
    line("axis", LOWEST, HIGHEST, AXIS, AXIS),
    TICKS.map((hz) => text(hz, AXIS + 24, hz)),
    measured,
    used && attemptDots(used, attempts),
  ];
  const said = median ? `measured ${hertz(median)}, ${inBand ? "in" : "out of"} the band, after ${used} of ${attempts} attempts` : "not measured yet";
  const rows = [
    ["band ordered", `${round(from, 1)} to ${round(to, 1)} Hz`], ["target", hertz(target)], ["median measured", hertz(median)],
    ["lower quartile", hertz(low)], ["upper quartile", hertz(high)], ["attempts", used ? `${used} of ${attempts}` : "–"],
  ];
  return figure(`Pitch: ordered ${Math.round(from)} to ${Math.round(to)} Hz, ${said}`, SIZE, shapes, table("Pitch", ["measure", "value"], rows));
}

// The server keeps the pitch of the best attempt only; the others are known by their number.
const attemptDots = (used, attempts) => Array.from({ length: attempts }, (_, index) =>
  svg("circle", { class: index < used ? "attempt used" : "attempt", cx: SIZE.width - 10 - (attempts - index) * 16, cy: 16, r: 5 }));
