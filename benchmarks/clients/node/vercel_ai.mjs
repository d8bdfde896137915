// The Vercel AI SDK, over OpenAI's two wires and Anthropic's.
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { embedMany, generateObject, generateText, streamText, tool } from "ai";
import { z } from "zod";

import { check, run, step } from "./steps.mjs";

const baseURL = `${process.env.PARLANCE_URL}/v1`;
const apiKey = process.env.PARLANCE_KEY;
const name = "smollm2-135m-instruct";
const prompt = "Name the capital of France.";

// `supportsStructuredOutputs` makes the SDK send schemas; without it, it asks in words.
const parlance = createOpenAICompatible({ name: "parlance", baseURL, apiKey, supportsStructuredOutputs: true });
const responses = createOpenAI({ baseURL, apiKey });
const anthropic = createAnthropic({ baseURL, apiKey });

const weather = tool({
  description: "The weather in a city",
  inputSchema: z.object({ city: z.enum(["Paris", "Rome"]) }),
  execute: async () => "sunny",
});

async function written(model) {
  const { text, usage } = await generateText({ model, prompt, maxOutputTokens: 20 });
  check(text && usage.outputTokens > 0, "text and usage");
}

async function streamed(model) {
  let pieces = "";
  const stream = streamText({ model, prompt, maxOutputTokens: 20, onError: ({ error }) => { throw error; } });
  for await (const piece of stream.textStream) pieces += piece;
  check(pieces && pieces === (await stream.text), "pieces add up");
}

async function called(model) {
  const { toolResults } = await generateText({
    model, prompt, tools: { weather }, toolChoice: "required", maxOutputTokens: 100,
  });
  check(toolResults[0].output === "sunny", "the tool was run");
}

step("generateText and streamText", async () => {
  await written(parlance(name));
  await streamed(parlance(name));
});

step("tools", () => called(parlance(name)));

step("generateObject", async () => {
  const schema = z.object({ city: z.enum(["Paris", "Rome"]), is_capital: z.boolean() });
  const { object } = await generateObject({ model: parlance(name), schema, prompt, maxOutputTokens: 200 });
  check(typeof object.is_capital === "boolean", "an object");
});

step("embedMany", async () => {
  const model = parlance.embeddingModel("all-minilm-l6-v2");
  const { embeddings } = await embedMany({ model, values: ["a cat", "a kitten"] });
  check(embeddings.length === 2 && embeddings[0].length === 384, "two vectors");
});

step("@ai-sdk/openai, over responses", async () => {
  await written(responses(name));
  await streamed(responses(name));
  await called(responses(name));
});

step("@ai-sdk/openai, over chat", () => written(responses.chat(name)));

step("@ai-sdk/anthropic", async () => {
  await written(anthropic(name));
  await streamed(anthropic(name));
  await called(anthropic(name));
});

await run();
