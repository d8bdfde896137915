// The panel of the documentation: a search over the Model Context Protocol, and sections to read.
import { read } from "../api.js";
import { h, replace, visible } from "../dom.js";
import { plural } from "../format.js";
import { folded } from "../parts.js";
import { Mistake } from "./form.js";

const headers = { Accept: "application/json, text/event-stream" };
const tool = (name, args) => ({
  path: "v1/mcp/docs/mcp", headers, keyless: true, json: { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name, arguments: args } },
});

export const documentation = {
  name: "documentation",
  title: "Documentation",
  about: "Searches this server's documentation over the Model Context Protocol, as an agent does. No model is involved.",
  verb: "Search",
  fields: [
    { name: "query", label: "Words", kind: "line", value: "how do I set a budget", wide: true },
  ],
  request({ query }) {
    if (!query) throw new Mistake("Words: write what you look for.");
    return tool("search_docs", { query, top_n: 5 });
  },
  show(reply, _, desk) {
    const { results } = answered(reply);
    replace(desk.output, results.map(sectionOf));
    return results.length ? `${plural(results.length, "section")} found.` : "Nothing has these words.";
  },
};

// A tool that failed says so in its result, and a message that is wrong in `error`.
function answered({ result, error }) {
  const text = error?.message ?? result.content?.map((part) => part.text).join("\n");
  if (error || result.isError) throw new Error(text);
  return result.structuredContent ?? { ...result, text };
}

function sectionOf({ id, title, excerpt }) {
  const text = h("pre", { class: "page", tabindex: "0", role: "region", "aria-label": visible(title) });
  const part = folded("Read", text);
  part.addEventListener("toggle", async () => (text.textContent ||= await page(id).catch(({ message }) => message)));
  return h("article", { class: "section" }, h("h3", {}, visible(title)), h("p", { dir: "auto" }, excerpt), h("code", {}, visible(id)), part);
}

async function page(id) {
  const { path, ...request } = tool("read_doc", { id });
  return answered(await read(path, request)).text;
}
