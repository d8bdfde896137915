// The panel of POST /embeddings: pasted lines as points of a map, near where the model finds them alike.
import { svg, visible } from "../dom.js";
import { figure, joined, round, table } from "../parts.js";
import { Mistake, present } from "./form.js";
import { priced } from "./reply.js";
import { model, modelField } from "./sources.js";

const LINES = "The cat sleeps on the sofa.\nA dog lies on the carpet.\nInterest rates rise again.\nThe bank lends money.\nKittens play with wool.\nThe currency lost value.";
const SIZE = { width: 640, height: 360 };
const EDGE = 30;
const MOST = 40;
const PURPOSES = ["query", "document", "code", "classification", "clustering"];

export const embeddings = {
  name: "embeddings",
  title: "Embeddings",
  about: "Turns each line into a vector and draws the two directions in which they differ most. Near points mean similar things.",
  verb: "Draw",
  fields: [
    modelField("embedding"),
    { name: "input_type", label: "What they are for", kind: "choice", options: () => [["", "not said"], ...PURPOSES.map((name) => [name, name])] },
    { name: "input", label: `Texts, one a line, at most ${MOST}`, kind: "text", as: "lines", rows: 6, value: LINES, wide: true },
  ],
  request(values) {
    if (values.input.length > MOST) throw new Mistake(`${values.input.length} lines are too many for the map; at most ${MOST} are drawn.`);
    return { path: "v1/embeddings", json: present(values) };
  },
  async show({ data, usage, model: id }, { input }, desk) {
    const vectors = data.map(({ embedding }) => embedding);
    desk.output.replaceChildren(map(vectors, input), similarities(vectors, input));
    const cost = priced(await model(id), { input_tokens: usage.prompt_tokens });
    return `${joined(`${input.length} texts`, `${vectors[0].length} dimensions`, `${usage.total_tokens} tokens`, cost)}.`;
  },
};

function map(vectors, texts) {
  const { points, shares } = principal(vectors);
  const scale = (axis, size) => {
    const values = points.map((point) => point[axis]);
    const [low, high] = [Math.min(...values), Math.max(...values)];
    return (value) => (high - low < 1e-9 ? size / 2 : EDGE + ((value - low) / (high - low)) * (size - 2 * EDGE));
  };
  const [x, y] = [scale(0, SIZE.width), scale(1, SIZE.height)];
  const shapes = points.map(([across, up], index) => dot(x(across), SIZE.height - y(up), index + 1, visible(texts[index])));
  const rows = points.map((place, index) => [visible(texts[index]), index + 1, ...place.map((value) => round(value))]);
  const share = shares.map((part) => `${Math.round(part * 100)} %`).join(" and ");
  const label = `Map of ${points.length} texts; its axes show ${share} of their differences.`;
  return figure(label, SIZE, shapes, table("Places on the map", ["text", "number", "across", "up"], rows));
}

function dot(x, y, number, words) {
  const [offset, anchor] = x > SIZE.width * 0.6 ? [-10, "end"] : [10, "start"];
  const short = words.length > 36 ? `${words.slice(0, 35)}…` : words;
  const label = svg("text", { x: x + offset, y: y + 4, "text-anchor": anchor }, number, svg("tspan", {}, ` ${short}`));
  return svg("g", { class: "point" }, svg("title", {}, `${number} ${words}`), svg("circle", { cx: x, cy: y, r: 5 }), label);
}

function similarities(vectors, texts) {
  const rows = vectors.map((vector, row) => [`${row + 1} ${visible(texts[row])}`, ...vectors.map((other) => round(cosine(vector, other), 2))]);
  return table("Similarities, 1 for the same direction", ["text", ...vectors.map((_, index) => index + 1)], rows);
}

const product = (a, b) => a.reduce((sum, value, index) => sum + value * b[index], 0);
const length = (a) => Math.sqrt(product(a, a));

/** How alike two vectors are: the cosine of the angle between them, 0 where one has no length. */
const cosine = (a, b) => product(a, b) / (length(a) * length(b) || Infinity);

/**
 * Points `[x, y]` of `vectors` along the two directions in which they differ most, and the share of variance of each: their
 * principal components, found by power iteration.
 */
function principal(vectors) {
  const mean = vectors[0].map((_, column) => vectors.reduce((sum, row) => sum + row[column], 0) / vectors.length);
  const rows = vectors.map((row) => row.map((value, column) => value - mean[column]));
  let products = rows.map((row) => rows.map((other) => product(row, other)));
  const total = products.reduce((sum, row, index) => sum + row[index], 0);
  const components = [0, 1].map(() => {
    const axis = direction(products);
    const weight = Math.max(0, product(axis, products.map((row) => product(row, axis))));
    products = products.map((row, index) => row.map((value, column) => value - weight * axis[index] * axis[column]));
    return { places: axis.map((value) => value * Math.sqrt(weight)), share: total ? weight / total : 0 };
  });
  const points = vectors.map((_, index) => components.map(({ places }) => places[index]));
  return { points, shares: components.map(({ share }) => share) };
}

// There are fewer texts than dimensions, so the products of texts are smaller than the covariance matrix.
function direction(products) {
  let axis = products.map((_, index) => Math.cos(index + 1));
  for (let step = 0; step < 60; step += 1) {
    const next = products.map((row) => product(row, axis));
    const norm = length(next);
    if (norm < 1e-12) return next.map(() => 0);
    axis = next.map((value) => value / norm);
  }
  return axis;
}
