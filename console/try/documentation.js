// The panel of the MCP endpoints: a search of the documentation, a section to read, and the tools that a key may call.
import { read as fetched } from "../api.js";
import { h, replace, visible } from "../dom.js";
import { plural } from "../format.js";
import { table } from "./drawing.js";
import { Mistake } from "./form.js";
import { button, row } from "./parts.js";

const headers = { Accept: "application/json, text/event-stream" };
const [DOCS, TOOLS] = ["v1/mcp/docs/mcp", "v1/mcp/mcp"];

const called = (path, method, params = {}) => ({ path, headers, keyless: path === DOCS, json: { jsonrpc: "2.0", id: 1, method, params } });
const tool = (name, args) => called(DOCS, "tools/call", { name, arguments: args });

export const documentation = {
  name: "documentation",
  title: "Documentation",
  about: "Searches this server's documentation over the Model Context Protocol, as an agent does. No model is involved.",
  verb: "Search",
  fields: [
    { name: "query", label: "Words", kind: "line", value: "how do I set a budget", wide: true },
    { name: "top_n", label: "Sections", kind: "number", value: 5, min: 1, max: 20 },
  ],
  prepare(desk) {
    desk.buttons.append(button("List the tools", () => desk.run(() => listTools(desk))));
  },
  request({ query, top_n = 5 }) {
    if (!query) throw new Mistake("Words: write what you look for.");
    return tool("search_docs", { query, top_n });
  },
  show(reply, _, desk) {
    const { results } = answered(reply);
    replace(desk.output, results.map((section) => sectionOf(section, desk)));
    return results.length ? `${plural(results.length, "section")} found.` : "Nothing has these words.";
  },
};

// A tool that failed says so in its result, and a message that is wrong in `error`.
function answered({ result, error }) {
  const text = error?.message ?? result.content?.map((part) => part.text).join("\n");
  if (error || result.isError) throw new Error(text);
  return result.structuredContent ?? { ...result, text };
}

function sectionOf({ id, title, excerpt }, desk) {
  const text = h("pre", { class: "page", hidden: true, tabindex: "0", role: "region", "aria-label": visible(title) });
  const open = async () => {
    if (!text.textContent) await desk.run(() => readPage(id, text));
    text.hidden = !text.hidden;
    read.setAttribute("aria-expanded", !text.hidden);
  };
  const read = button("Read", open);
  read.setAttribute("aria-expanded", "false");
  return h("article", { class: "section" }, h("h3", {}, visible(title)), h("p", { dir: "auto" }, excerpt), row(read, h("code", {}, visible(id))), text);
}

const ask = ({ path, ...request }) => fetched(path, request).then(answered);

async function readPage(id, place) {
  const { text } = await ask(tool("read_doc", { id }));
  place.textContent = text;
  return "Opened.";
}

async function listTools(desk) {
  const lists = await Promise.all([TOOLS, DOCS].map(async (path) => (await ask(called(path, "tools/list"))).tools.map((each) => [path.slice(2), each])));
  const rows = lists.flat().map(([path, { name, description, inputSchema }]) => [visible(name), path, Object.keys(inputSchema.properties ?? {}).join(", "), visible(description)]);
  replace(desk.output, table("Tools", ["name", "endpoint", "takes", "description"], rows));
  return `${plural(rows.length, "tool")}.`;
}
