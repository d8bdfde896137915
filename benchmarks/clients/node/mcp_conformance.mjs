// The MCP project's own conformance suite: what applies to a server of tools without sessions.
import { installed, ran, watched } from "./driven.mjs";
import { run, step } from "./steps.mjs";

// The suite wants Node 22; where an older one runs this, a newer one comes as a package.
const isOld = Number(process.versions.node.split(".")[0]) < 22;
const node = () => (isOld ? `${installed(`node-${process.platform}-${process.arch}`)}bin/node` : process.execPath);

// Once without a key at the documentation, and once with one, which the suite has no option for.
async function held(scenario) {
  const suite = `${installed("@modelcontextprotocol/conformance")}dist/index.js`;
  const server = await watched({ authorization: `Bearer ${process.env.PARLANCE_KEY}` });
  const addresses = [`${process.env.PARLANCE_URL}/v1/mcp/docs/mcp`, `${server.url}/v1/mcp/mcp`];
  await Promise.all(addresses.map((url) => ran([suite, "server", "--url", url, "--scenario", scenario], {}, node())));
}

step("initialize", () => held("server-initialize"));
step("ping", () => held("ping"));
step("tools/list", () => held("tools-list"));
step("protection from DNS rebinding", () => held("dns-rebinding-protection"));

await run();
