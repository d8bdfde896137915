// The panel of POST /rerank: documents sorted by how well they fit a query, with their scores as bars.
import { visible } from "../dom.js";
import { bar, joined, round, table } from "../parts.js";
import { present } from "./form.js";
import { priced } from "./reply.js";
import { model, modelField } from "./sources.js";

const DOCUMENTS = "Paris is the capital of France.\nBananas are yellow.\nBerlin has three and a half million inhabitants.\nThe Seine flows through Paris.";

export const rerank = {
  name: "rerank",
  title: "Rerank",
  about: "Sorts documents by how well they fit a query. Scores of different models cannot be compared.",
  verb: "Sort",
  fields: [
    modelField("rerank"),
    { name: "query", label: "Query", kind: "line", value: "capital of France", wide: true },
    { name: "documents", label: "Documents, one a line", kind: "text", as: "lines", rows: 6, value: DOCUMENTS, wide: true },
    { name: "top_n", label: "Only the best", kind: "number", min: 1 },
  ],
  request: (values) => ({ path: "v1/rerank", json: present(values) }),
  async show({ results, usage, model: id }, { documents }, desk) {
    const scores = results.map(({ relevance_score: score }) => score);
    const [low, high] = [Math.min(0, ...scores), Math.max(0, ...scores)];
    const share = (score) => (score - low) / (high - low || 1);
    const rows = results.map(({ index, relevance_score: score }) => [
      visible(documents[index]), index, bar(share(score), { from: share(0) }), round(score),
    ]);
    desk.output.replaceChildren(table("Documents, best first", ["document", "index", "", "score"], rows));
    const spent = joined(`${usage.total_tokens} tokens`, priced(await model(id), { input_tokens: usage.prompt_tokens, search_units: 1 }));
    return `${results.length} documents sorted: the best has index ${results[0].index}. ${spent}.`;
  },
};
