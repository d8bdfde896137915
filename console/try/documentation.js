// The panel of the MCP endpoints: a search of the documentation, a section to read, and the tools that a key may call.
import { h, replace, visible } from "../dom.js";
import { plural } from "../format.js";
import { Mistake } from "./form.js";
import { send } from "./reply.js";
import { table } from "./drawing.js";
import { read } from "../api.js";

const HEADERS = { Accept: "application/json, text/event-stream" };
const DOCS = "v1/mcp/docs/mcp";

const called = (path, method, params) => ({ path, headers: HEADERS, keyless: path === DOCS, json: { jsonrpc: "2.0", id: 1, method, ...(params && { params }) } });
const tool = (name, args) => called(DOCS, "tools/call", { name, arguments: args });

export const documentation = {
  name: "documentation",
  title: "Documentation",
  about: "Searches this server's documentation over the Model Context Protocol, as an agent does. No model is involved.",
  verb: "Search",
  fields: [
    { name: "query", label: "Words", kind: "line", value: "how do I set a budget", wide: true },
    { name: "top_n", label: "Sections", kind: "number", value: 5, min: 1, max: 20, step: 1 },
  ],
  prepare(desk) {
    const tools = h("button", { class: "button quiet", type: "button", onClick: () => desk.run(() => listTools(desk)) }, "List the tools");
    desk.buttons.append(tools);
  },
  request({ query, top_n }) {
    if (!query) throw new Mistake("Words: write what you look for.");
    return tool("search_docs", { query, ...(top_n && { top_n }) });
  },
  show({ result, error }, _, desk) {
    const { results } = answered(result, error);
    replace(desk.output, results.map((section) => sectionOf(section, desk)));
    return results.length ? `${plural(results.length, "section")} found.` : "Nothing has these words.";
  },
};

// A tool that failed says so in its result, and a message that is wrong in `error`.
function answered(result, error) {
  if (error) throw new Error(error.message);
  if (result.isError) throw new Error(result.content.map(({ text }) => text).join("\n"));
  return result.structuredContent ?? { text: result.content.map(({ text }) => text).join("\n") };
}

function sectionOf({ id, title, excerpt }, desk) {
  const text = h("pre", { class: "page", hidden: true, tabindex: "0", role: "region", "aria-label": visible(title) });
  const open = async ({ target }) => {
    if (!text.textContent) await desk.run(() => readPage(id, text));
    text.hidden = !text.hidden;
    target.setAttribute("aria-expanded", String(!text.hidden));
  };
  const button = h("button", { class: "button quiet", type: "button", "aria-expanded": "false", onClick: open }, "Read");
  return h("article", { class: "section" }, h("h3", {}, visible(title)), h("p", { dir: "auto" }, excerpt), h("p", { class: "row" }, button, h("code", {}, visible(id))), text);
}

async function readPage(id, place) {
  const { json, path, headers } = tool("read_doc", { id });
  const { result, error } = await read(path, { json, headers });
  place.textContent = answered(result, error).text ?? "";
  return "Opened.";
}

async function listTools(desk) {
  const rows = [];
  for (const path of ["v1/mcp/mcp", DOCS]) {
    const { result } = await (await send(called(path, "tools/list"), desk.signal)).json();
    rows.push(...result.tools.map(({ name, description, inputSchema }) => [visible(name), path.slice(2), Object.keys(inputSchema.properties ?? {}).join(", "), visible(description)]));
  }
  replace(desk.output, table("Tools", ["name", "endpoint", "takes", "description"], rows));
  return `${plural(rows.length, "tool")}.`;
}
