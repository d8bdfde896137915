// One request: a sentence that says why it took so long, the waterfall of its parts as SVG, and the same as a table.

import { h, named, svg, visible } from "./dom.js";
import { duration, moment, money, plural } from "./format.js";
import { axis, drawn, note, pairs, table } from "./parts.js";

const WIDTH = 1000;
const ROW = 22;
const COLOURS = { engine: 0, gateway: 1, queue: 2, load: 3, admission: 5 };
const PHASES = {
  "load.place": "a place for the replica",
  "load.process": "start of the process",
  "load.import": "imports",
  "load.weights": "weights",
};

export function waterfall(request) {
  const spans = request.spans.flatMap(({ phases, ...span }) => {
    const colour = `series-${COLOURS[span.name]}`;
    return [{ ...span, colour }, ...phases.map((phase) => ({ ...phase, colour, isPhase: true }))];
  });
  return [
    h("h2", { tabindex: "-1" }, "Request ", named(request.request_id)),
    h("p", { class: "lead" }, why(request)),
    facts(request),
    spans.length
      ? h("div", { class: "waterfall" }, drawing(spans, request.duration_ms), twin(spans))
      : note("No parts were measured: it ended before it reached an engine."),
    h("p", {}, h("a", { href: "#requests" }, "Close")),
  ];
}

/** The longest wait of a request in a sentence, and what it cost in time beside it. */
export function why({ parts, outcome, code, status, engine, waited_behind: behind, duration_ms: tookMs }) {
  const name = engine === null ? "its engine" : visible(engine);
  const others = behind > 0 ? `, behind ${plural(behind, "other")}` : "";
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

function ending(outcome, status, code) {
  const how = `with ${status}${code ? ` (${code})` : ""}.`;
  return { refused: ` It was refused ${how}`, failed: ` It failed ${how}`, left: " Its client went away before it ended." }[outcome] ?? "";
}

const facts = ({ time_ms: timeMs, method, route, model, engine, duration_ms: tookMs, cost_micro_eur: cost, user, key_id: key }) =>
  pairs([
    ["When", moment(timeMs)],
    ["Route", h("code", {}, `${method} ${route}`)],
    ["Model", model && named(model)],
    ["Engine", engine && named(engine)],
    ["Took", duration(tookMs)],
    ["Cost", money(cost ?? 0)],
    ["User", user && named(user)],
    ["Key", named(key)],
  ]);

function drawing(spans, tookMs) {
  const lastMs = Math.max(tookMs, ...spans.map((span) => span.to_ms), 1);
  const x = (ms) => (Math.max(0, ms) / lastMs) * WIDTH;
  const bars = spans.map(({ from_ms: fromMs, to_ms: toMs, colour, isPhase }, index) =>
    svg("rect", {
      class: `part ${colour}${isPhase ? " phase" : ""}`,
      x: x(fromMs).toFixed(1),
      width: Math.max(3, x(toMs) - x(fromMs)).toFixed(1),
      y: index * ROW + (isPhase ? 7 : 3),
      height: ROW - (isPhase ? 12 : 6),
    }),
  );
  const height = spans.length * ROW;
  const grid = [0.25, 0.5, 0.75].map((part) => svg("line", { class: "tick", x1: part * WIDTH, x2: part * WIDTH, y2: height }));
  const label = "The parts of the request in time; the table says the same.";
  return h("figure", {},
    drawn(label, WIDTH, height, { preserveAspectRatio: "none", height }, grid, bars),
    axis("0", duration(lastMs / 2), duration(lastMs)));
}

function twin(spans) {
  const part = ({ name, engine, colour, isPhase }) =>
    h("span", { class: isPhase && "phase" },
      h("span", { class: `key ${colour}`, "aria-hidden": "true" }), PHASES[name] ?? visible(name), engine && [" of ", named(engine)]);
  const rows = spans.map((span) => [part(span), duration(span.from_ms), duration(span.to_ms - span.from_ms)]);
  return table("Parts of the request", ["Part", "After", "For"], rows, [1, 2]);
}
