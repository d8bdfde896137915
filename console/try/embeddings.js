// The panel of POST /embeddings: pasted lines as points of a map, near where the model finds them alike.
import { svg, visible } from "../dom.js";
import { figure, round, table } from "./drawing.js";
import { Mistake, present } from "./form.js";
import { cosine, principal } from "./projection.js";
import { priced } from "./reply.js";
import { model, modelField } from "./sources.js";

const LINES = "The cat sleeps on the sofa.\nA dog lies on the carpet.\nInterest rates rise again.\nThe bank lends money.\nKittens play with wool.\nThe currency lost value.";
const SIZE = { width: 640, height: 360 };
const EDGE = 30;
const MOST = 64;
const MATRIX = 12;

export const embeddings = {
  name: "embeddings",
  title: "Embeddings",
  about: "Turns each line into a vector and draws the two directions in which they differ most. Near points mean similar things.",
  verb: "Draw",
  fields: [
    modelField("embedding"),
    { name: "input", label: `Texts, one a line, at most ${MOST}`, kind: "text", as: "lines", rows: 7, value: LINES, wide: true },
    {
      name: "input_type", label: "What they are for", kind: "choice", more: true,
      options: () => [["", "not said"], ...["query", "document", "code", "classification", "clustering"].map((type) => [type, type])],
    },
  ],
  request(values) {
    if (values.input.length > MOST) throw new Mistake(`${values.input.length} lines are too many for the map; at most ${MOST} are drawn.`);
    const json = present(values);
    return { path: "v1/embeddings", json, sdk: { call: "embeddings.create", takes: ["model", "input"], tail: ")\nprint(len(reply.data), reply.usage)" } };
  },
  async show({ data, usage, model: id }, { input }, desk) {
    const vectors = data.map(({ embedding }) => embedding);
    desk.output.replaceChildren(map(vectors, input), similarities(vectors, input));
    const cost = priced(await model(id), { input_tokens: usage.prompt_tokens });
    return `${input.length} texts, ${vectors[0].length} dimensions, ${usage.total_tokens} tokens${cost ? `, ${cost}` : ""}.`;
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
  const shapes = points.map(([first, second], index) => dot(x(first), SIZE.height - y(second), index, texts[index]));
  const rows = points.map(([first, second], index) => [visible(texts[index]), String(index + 1), round(first), round(second)]);
  const share = shares.map((part) => `${Math.round(part * 100)} %`).join(" and ");
  const label = `Map of ${points.length} texts; the axes show ${share} of their differences.`;
  return figure(label, SIZE, shapes, table("Places on the map", ["text", "number", "across", "up"], rows));
}

function dot(x, y, index, text) {
  const isRight = x > SIZE.width * 0.6;
  const words = visible(text);
  const short = words.length > 34 ? `${words.slice(0, 33)}…` : words;
  const label = svg("text", { x: x + (isRight ? -10 : 10), y: y + 4, "text-anchor": isRight ? "end" : "start" }, `${index + 1} ${short}`);
  return svg("g", { class: "point" }, svg("title", {}, words), svg("circle", { cx: x, cy: y, r: 5 }), label);
}

// With many lines a whole matrix cannot be read: then each has the line that is most like it.
function similarities(vectors, texts) {
  const numbers = vectors.map((_, index) => index);
  if (vectors.length <= MATRIX) {
    const rows = numbers.map((row) => [`${row + 1} ${visible(texts[row])}`, ...numbers.map((column) => round(cosine(vectors[row], vectors[column]), 2))]);
    return table("Similarities, 1 for the same direction", ["text", ...numbers.map((column) => String(column + 1))], rows);
  }
  const nearest = (row) => numbers.filter((column) => column !== row).map((column) => [cosine(vectors[row], vectors[column]), column]).sort(([a], [b]) => b - a)[0];
  const rows = numbers.map((row) => [visible(texts[row]), visible(texts[nearest(row)[1]]), round(nearest(row)[0], 2)]);
  return table("The most similar line to each", ["text", "most similar", "similarity"], rows);
}
