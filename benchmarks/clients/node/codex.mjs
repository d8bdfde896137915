// Codex's command line over responses, without a terminal. Its namespace of tools is taken, its search left out.
import { mkdirSync, writeFileSync } from "node:fs";

import { installed, isCharged, ran, spent, taken, watched } from "./driven.mjs";
import { check, run, step } from "./steps.mjs";

const SCHEMA = {
  type: "object",
  properties: { city: { enum: ["Paris", "Rome"] } },
  required: ["city"],
  additionalProperties: false,
};
const home = `${process.env.HOME}/.codex`;

// What belongs into ~/.codex/config.toml. The last lines are for the small model: it reads short prompts sooner.
const settings = (url) => `
model = "smollm2-135m-instruct"
model_provider = "parlance"
check_for_update_on_startup = false
model_instructions_file = "${home}/instructions.md"

[model_providers.parlance]
name = "Parlance"
base_url = "${url}/v1"
env_key = "PARLANCE_KEY"
wire_api = "responses"

[analytics]
enabled = false

[skills]
include_instructions = false
`;

async function asked(...command) {
  installed(`@openai/codex-${process.platform}-${process.arch}`);
  const server = await watched();
  mkdirSync(home, { recursive: true });
  writeFileSync(`${home}/config.toml`, settings(server.url));
  writeFileSync(`${home}/instructions.md`, "Be brief.");
  writeFileSync("schema.json", JSON.stringify(SCHEMA));
  const before = await spent();
  const options = ["--skip-git-repo-check", "--json", "--output-schema", "schema.json"];
  const program = `${installed("@openai/codex")}bin/codex.js`;
  const output = await ran([program, "exec", ...command, ...options], { CODEX_HOME: home });
  const events = output.trim().split("\n").map((line) => JSON.parse(line));
  const said = events.findLast((event) => event.item?.type === "agent_message").item.text;
  check(["Paris", "Rome"].includes(JSON.parse(said).city), said);
  const end = events.at(-1);
  check(end.type === "turn.completed" && end.usage.output_tokens > 0, JSON.stringify(end));
  check(await isCharged(before), "the answer is in the ledger");
  return taken(server.seen, "/v1/responses");
}

step("codex exec, with its namespace of tools", async () => {
  const [{ tools, replied }] = await asked("Name the capital of France.");
  check(tools.some((tool) => tool.type === "namespace"), "a namespace is offered");
  const search = tools.findIndex((tool) => tool.type === "web_search");
  check(replied["x-service-ignored"] === `tools[${search}]`, "the search is left out and told");
});

step("codex exec resume", async () => {
  const [{ input }] = await asked("resume", "--last", "And of Italy?");
  check(input.some((item) => item.role === "assistant"), "the answer before is in the conversation");
});

await run();
