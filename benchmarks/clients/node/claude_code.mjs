// Claude Code's command line over messages, without a terminal.
import { installed, isCharged, ran, spent, taken, watched } from "./driven.mjs";
import { check, run, step } from "./steps.mjs";

const schema = {
  type: "object",
  properties: { city: { enum: ["Paris", "Rome"] } },
  required: ["city"],
  additionalProperties: false,
};

// The first three are what it needs. The last is for the small model, whose answer might have no end otherwise.
const settings = (url) => ({
  ANTHROPIC_BASE_URL: url,
  ANTHROPIC_API_KEY: process.env.PARLANCE_KEY,
  ANTHROPIC_MODEL: "smollm2-135m-instruct",
  CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
  CLAUDE_CODE_EXTRA_BODY: JSON.stringify({ output_config: { format: { type: "json_schema", schema } } }),
});

async function asked(...command) {
  installed(`@anthropic-ai/claude-code-${process.platform}-${process.arch}`);
  const server = await watched();
  const before = await spent();
  const options = ["--print", "--output-format", "json", "--bare", "--system-prompt", "Be brief."];
  const program = `${installed("@anthropic-ai/claude-code")}cli-wrapper.cjs`;
  const said = JSON.parse(await ran([program, ...options, ...command], settings(server.url)));
  check(!said.is_error && ["Paris", "Rome"].includes(JSON.parse(said.result).city), JSON.stringify(said));
  check(said.usage.output_tokens > 0, "tokens are counted");
  check(await isCharged(before), "the answer is in the ledger");
  return taken(server.seen, "/v1/messages");
}

step("print mode, with its tools", async () => {
  const [{ tools }] = await asked("Name the capital of France.");
  check(tools.length > 0, "tools are offered");
});

step("a conversation continued", async () => {
  const [{ messages }] = await asked("--continue", "And of Italy?");
  check(messages.some((message) => message.role === "assistant"), "the answer before is in the conversation");
});

await run();
