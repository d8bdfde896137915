// The panel of voice design: traits to order, the draft while it is made, its pitch, a listen, and adoption.
import { call, read } from "../api.js";
import { h, replace, visible } from "../dom.js";
import { money } from "../format.js";
import { Mistake, present } from "./form.js";
import { pitch } from "./pitch.js";
import { pairs } from "./reply.js";
import { forgetLists, list } from "./sources.js";
import { reachable } from "./upload.js";

const DRAFTS = "v1/audio/voices/designs";
const POLL_MS = 1500;
const TRAITS = ["timbre", "character", "tempo", "use_case"];

const options = () => list("v1/audio/voices/design-options");
const english = ({ id, labels }) => [id, labels.en ?? id];
const from = (pick, first = []) => async () => [...first, ...pick(await options()).map(english)];
const drawn = [["", "drawn at random"]];

export const design = {
  name: "design",
  title: "Voice design",
  about: "Orders a voice, measures its pitch, and lets you listen before you adopt it. A description fills in the traits.",
  verb: "Order the voice",
  fields: [
    { name: "text", label: "Description, in German or English", kind: "text", rows: 2, value: "a warm, deep voice of an old man who tells stories", wide: true },
    { name: "gender", label: "Gender", kind: "choice", options: from(({ genders }) => genders) },
    { name: "age_years", label: "Age in years", kind: "number", value: 45, min: 16, max: 90, step: 1 },
    { name: "language", label: "Language", kind: "choice", value: "en", options: from(({ languages }) => languages) },
    ...TRAITS.map((axis) => ({ name: axis, label: axis.replace("_", " "), kind: "choice", options: from(({ traits }) => traits[axis], drawn) })),
    { name: "target_hz", label: "Pitch in Hz", kind: "number", min: 60, max: 400, step: 1, more: true },
    { name: "free_text", label: "Words of your own at the end", kind: "line", more: true },
    { name: "instruct", label: "A description that replaces the traits", kind: "line", more: true },
    { name: "label", label: "Name", kind: "line", more: true },
  ],
  prepare(desk) {
    desk.drafts = h("div", { class: "drafts" });
    desk.output.append(desk.drafts);
    const suggest = h("button", { class: "button quiet", type: "button", onClick: () => desk.run((values) => suggested(desk, values)) }, "Fill in from the description");
    const earlier = h("button", { class: "button quiet", type: "button", onClick: () => desk.run(() => listed(desk)) }, "Earlier drafts");
    desk.buttons.prepend(suggest);
    desk.buttons.append(earlier);
  },
  request({ text: _, ...order }) {
    return { path: DRAFTS, json: present(order) };
  },
  async run(desk, values) {
    const { limits, available } = await options();
    if (!available) throw new Mistake("No voice designer is set up here.");
    const place = h("article", { class: "card draft" });
    let draft = await (await desk.call(this.request(values))).json();
    desk.drafts.prepend(place);
    while (draft.status === "pending") {
      show(draft, place, limits, desk);
      desk.tell("The designer speaks and measures …");
      await pause(POLL_MS, desk.signal);
      draft = await read(`${DRAFTS}/${draft.id}`, { signal: desk.signal });
    }
    show(draft, place, limits, desk);
    return ended(draft);
  },
};

const pause = (ms, signal) =>
  new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), reject(signal.reason)), { once: true });
  });

function ended({ status, error, measurements: { f0_hz: hz, in_band: inBand } }) {
  if (status === "failed") return `It failed: ${error}`;
  return `The draft is ${status}: ${Math.round(hz)} Hz, ${inBand ? "in" : "out of"} the band that was ordered. Listen before you adopt it.`;
}

async function suggested(desk, { text }) {
  if (!text) throw new Mistake("Description: write what the voice should sound like.");
  const reply = await read(`${DRAFTS}/suggest`, { json: { text }, signal: desk.signal });
  for (const name of ["gender", "age_years", "language", ...TRAITS]) desk.form.set(name, reply[name]);
  return [reply.reason, ...reply.hints].join(" ");
}

async function listed(desk) {
  const [{ data }, { limits }] = await Promise.all([read(DRAFTS, { signal: desk.signal }), options()]);
  replace(desk.drafts, data.slice(0, 12).map((draft) => show(draft, h("article", { class: "card draft" }), limits, desk)));
  return data.length ? `${data.length} drafts.` : "There are no drafts yet.";
}

/** Fills `place` with a draft: what was ordered, its pitch, its clip, and what can be done with it. */
function show(draft, place, limits, desk) {
  const { label, status, id, instruct, sample_url: sample, cost_micro_eur: cost, voice_slug: slug, error } = draft;
  const act = (path, method, work) => desk.run(async () => {
    const reply = await (await call(`${DRAFTS}/${id}${path}`, { method, signal: desk.signal })).json();
    forgetLists("v1/audio/voices");
    show(await work(reply), place, limits, desk);
    return method === "DELETE" ? "Discarded." : `Adopted as ${visible(reply.slug)}.`;
  });
  const button = (text, isThere, onClick) => isThere && h("button", { class: "button quiet", type: "button", onClick }, text);
  replace(place,
    h("h3", {}, visible(label), " ", h("span", { class: "muted" }, status)),
    h("p", { class: "muted", dir: "auto" }, instruct),
    pitch(draft, limits.attempts),
    sample && h("audio", { controls: true, src: reachable(sample), "aria-label": `Clip of ${visible(label)}` }),
    error && h("p", { class: "error" }, error),
    pairs([["cost", cost ? money(cost) : null], ["voice", slug && visible(slug)]]),
    h("div", { class: "row" },
      button("Adopt", status === "ready", () => act("/adopt", "POST", () => read(`${DRAFTS}/${id}`))),
      button("Discard", !["discarded", "failed"].includes(status), () => act("", "DELETE", (reply) => reply))));
  return place;
}
