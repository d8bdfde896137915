// Anthropic's SDK. Its base address has no /v1, and its key travels in x-api-key.
import Anthropic from "@anthropic-ai/sdk";

import { check, run, step } from "./steps.mjs";

const model = "smollm2-135m-instruct";
const messages = [{ role: "user", content: "Name the capital of France." }];
const tools = [
  {
    name: "weather",
    description: "The weather in a city",
    input_schema: { type: "object", properties: { city: { enum: ["Paris", "Rome"] } }, required: ["city"] },
  },
];
const client = new Anthropic({ baseURL: process.env.PARLANCE_URL, apiKey: process.env.PARLANCE_KEY });

step("messages", async () => {
  const message = await client.messages.create({ model, max_tokens: 20, system: "Be brief.", messages });
  check(message.content[0].text && message.usage.output_tokens > 0, "text and usage");
});

step("streamed messages", async () => {
  const stream = client.messages.stream({ model, max_tokens: 20, messages });
  let pieces = "";
  stream.on("text", (piece) => (pieces += piece));
  check((await stream.finalMessage()).content[0].text === pieces, "pieces add up");
});

step("tools, there and back", async () => {
  const asked = { model, max_tokens: 100, messages, tools, tool_choice: { type: "any" } };
  const { content } = await client.messages.create(asked);
  const call = content.find((block) => block.type === "tool_use");
  check(["Paris", "Rome"].includes(call.input.city), "arguments follow the schema");
  const result = { type: "tool_result", tool_use_id: call.id, content: "sunny" };
  const turns = [...messages, { role: "assistant", content }, { role: "user", content: [result] }];
  await client.messages.create({ model, max_tokens: 20, messages: turns, tools });
});

step("counted tokens", async () => {
  check((await client.messages.countTokens({ model, messages })).input_tokens > 5, "a number");
});

await run();
