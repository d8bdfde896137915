// One request: a sentence that says why it took so long, the waterfall of its parts as SVG, and the same as a table.

import { h, named, svg, visible } from "./dom.js";
import { duration, moment, money } from "./format.js";

const WIDTH = 1000;
const ROW = 22;
const PHASES = {
  "load.place": "a place for the replica",
  "load.process": "start of the process",
  "load.import": "imports",
  "load.weights": "weights",
};

/** The section of a request. */
export function waterfall(request) {
  const spans = request.spans.flatMap((span) => [
    { ...span, depth: 0 },
    ...(span.phases ?? []).map((phase) => ({ ...phase, engine: span.engine, kind: span.name, depth: 1 })),
  ]);
  return [
    h("h2", { tabindex: "-1" }, "Request ", named(request.request_id)),
    h("p", { class: "lead" }, why(request)),
    facts(request),
    spans.length
      ? h("div", { class: "waterfall" }, drawing(spans, request.duration_ms), table(spans))
      : h("p", { class: "note" }, "No parts were measured: it ended before it reached an engine."),
    h("p", {}, h("a", { href: "#requests" }, "Close")),
  ];
}

/** The longest wait of a request in a sentence, and what it cost in time beside it. */
export function why({ parts, outcome, code, status, engine, waited_behind: behind, duration_ms: tookMs }) {
  const name = engine === null || engine === undefined ? "its engine" : visible(engine);
  const others = behind > 0 ? `, behind ${behind} other${behind === 1 ? "" : "s"}` : "";
  const waits = [
    [parts.load, `It waited ${duration(parts.load)} for ${name} to load${others}.`],
    [parts.queue, `It waited ${duration(parts.queue)} for a free slot of ${name}${others}.`],
    [parts.admission, `It waited ${duration(parts.admission)} to be admitted: its key, its rate and its body were read.`],
  ];
  const [longestMs, sentence] = waits.reduce((one, other) => (other[0] > one[0] ? other : one));
  const isShort = longestMs < 50 && longestMs < tookMs / 4;
  const work = parts.engine >= 1 ? ` ${name} worked on it for ${duration(parts.engine)}.` : "";
  return `${isShort ? "It did not wait." : sentence}${work}${ending(outcome, status, code)}`;
}

const ending = (outcome, status, code) =>
  ({
    refused: ` It was refused with ${status}${code ? ` (${code})` : ""}.`,
    failed: ` It failed with ${status}${code ? ` (${code})` : ""}.`,
    left: " Its client went away before it ended.",
  })[outcome] ?? "";

function facts(request) {
  const values = {
    When: moment(request.time_ms),
    Route: h("code", {}, `${request.method} ${request.route}`),
    Model: request.model === null ? "none" : named(request.model),
    Engine: request.engine === null ? "none" : named(request.engine),
    Took: duration(request.duration_ms),
    Cost: request.cost_micro_eur === null ? "nothing" : money(request.cost_micro_eur),
    User: request.user === null ? "none" : named(request.user),
    Key: named(request.key_id ?? "none"),
  };
  return h("dl", { class: "facts wide" }, Object.entries(values).map(([label, value]) => h("div", {}, h("dt", {}, label), h("dd", {}, value))));
}

function drawing(spans, tookMs) {
  const lastMs = Math.max(tookMs, ...spans.map((span) => span.to_ms), 1);
  const x = (ms) => (Math.max(0, ms) / lastMs) * WIDTH;
  const bars = spans.map((span, index) =>
    svg("rect", {
      class: `part part-${className(span.kind ?? span.name)}${span.depth ? " phase" : ""}`,
      x: x(span.from_ms).toFixed(1),
      width: Math.max(3, x(span.to_ms) - x(span.from_ms)).toFixed(1),
      y: index * ROW + (span.depth ? 7 : 3),
      height: span.depth ? ROW - 12 : ROW - 6,
    }),
  );
  const height = spans.length * ROW;
  const grid = [0.25, 0.5, 0.75].map((part) => svg("line", { class: "tick", x1: part * WIDTH, x2: part * WIDTH, y1: 0, y2: height }));
  return h(
    "figure",
    {},
    svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, preserveAspectRatio: "none", height, role: "img", "aria-label": "The parts of the request in time; the table says the same." }, grid, bars),
    h("figcaption", { class: "axis muted", "aria-hidden": "true" }, h("span", {}, "0"), h("span", {}, duration(lastMs / 2)), h("span", {}, duration(lastMs))),
  );
}

const className = (name) => String(name).toLowerCase().replace(/[^a-z]+/g, "-").slice(0, 20);

function table(spans) {
  const row = (span) =>
    h(
      "tr",
      { class: span.depth ? "phase" : null },
      h("th", { scope: "row" }, h("span", { class: `key part-${className(span.kind ?? span.name)}`, "aria-hidden": "true" }), PHASES[span.name] ?? visible(span.name), span.engine && !span.depth ? [" of ", named(span.engine)] : []),
      h("td", { class: "number" }, duration(span.from_ms)),
      h("td", { class: "number" }, duration(span.to_ms - span.from_ms)),
    );
  return h(
    "table",
    {},
    h("caption", { class: "visually-hidden" }, "Parts of the request"),
    h("thead", {}, h("tr", {}, ["Part", "After", "For"].map((text, index) => h("th", { scope: "col", class: index ? "number" : null }, text)))),
    h("tbody", {}, spans.map(row)),
  );
}
