// The MCP SDK, as editors and agents use it. The documentation needs no key.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

import { check, run, step } from "./steps.mjs";

async function called(path, tool, given, headers = {}) {
  const url = new URL(`${process.env.PARLANCE_URL}/v1${path}`);
  const client = new Client({ name: "conformance", version: "1" });
  await client.connect(new StreamableHTTPClientTransport(url, { requestInit: { headers } }));
  const { tools } = await client.listTools();
  check(tools.some((one) => one.name === tool), `${tool} is listed`);
  const result = await client.callTool({ name: tool, arguments: given });
  await client.close();
  check(!result.isError, JSON.stringify(result));
  return result;
}

const authorization = `Bearer ${process.env.PARLANCE_KEY}`;

step("tools: chat", async () => {
  const result = await called("/mcp/mcp", "chat", { message: "Say hello.", max_tokens: 20 }, { authorization });
  check(result.content[0].text, "text");
});

step("tools: search", async () => {
  const given = { query: "capital of France", documents: ["Bananas.", "Paris is in France."] };
  const result = await called("/mcp/mcp", "search", given, { authorization });
  check(result.structuredContent.results[0].index === 1, "the best is named");
});

step("the documentation, without a key", async () => {
  check((await called("/mcp/docs/mcp", "search_docs", { query: "retry after" })).content[0].text, "sections");
});

step("images", () => called("/mcp/mcp", "image", { prompt: "a cat" }, { authorization }), {
  cannot: "planned, not available",
  error: "not_implemented",
});

await run();
