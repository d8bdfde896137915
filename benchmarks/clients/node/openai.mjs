// OpenAI's SDK: chat, responses, completions, embeddings, speech, transcription.
import OpenAI, { toFile } from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

import { check, run, step } from "./steps.mjs";

const model = "smollm2-135m-instruct";
const messages = [{ role: "user", content: "Name the capital of France." }];
const parameters = {
  type: "object",
  properties: { city: { enum: ["Paris", "Rome"] } },
  required: ["city"],
  additionalProperties: false,
};
const client = new OpenAI({ baseURL: `${process.env.PARLANCE_URL}/v1`, apiKey: process.env.PARLANCE_KEY });

step("models", async () => {
  const ids = [];
  for await (const one of client.models.list()) ids.push(one.id);
  check(ids.includes(model), "the model is listed");
});

step("chat", async () => {
  const answer = await client.chat.completions.create({ model, messages, max_tokens: 20 });
  check(answer.choices[0].message.content && answer.usage.total_tokens > 0, "text and usage");
});

step("streamed chat", async () => {
  const stream = client.chat.completions.stream({ model, messages, temperature: 0, max_tokens: 100 });
  let pieces = "";
  stream.on("content", (piece) => (pieces += piece));
  check((await stream.finalContent()) === pieces, "pieces add up");
});

step("tools, there and back", async () => {
  const tools = [{ type: "function", function: { name: "weather", description: "The weather", parameters } }];
  const asked = { model, messages, tools, tool_choice: "required", max_tokens: 100 };
  const { message } = (await client.chat.completions.create(asked)).choices[0];
  const [call] = message.tool_calls;
  check(["Paris", "Rome"].includes(JSON.parse(call.function.arguments).city), "arguments follow the schema");
  const turns = [...messages, message, { role: "tool", tool_call_id: call.id, content: "sunny" }];
  await client.chat.completions.create({ model, messages: turns, tools, max_tokens: 20 });
});

step("answers as a zod type", async () => {
  const Place = z.object({ city: z.enum(["Paris", "Rome"]), is_capital: z.boolean() });
  const response_format = zodResponseFormat(Place, "place");
  const answer = await client.chat.completions.parse({ model, messages, response_format, max_tokens: 200 });
  check(typeof answer.choices[0].message.parsed.is_capital === "boolean", "parsed");
});

step("responses", async () => {
  const response = await client.responses.create({ model, input: "Say hello.", max_output_tokens: 20 });
  check(response.output_text && response.usage.total_tokens > 0, "text and usage");
});

step("streamed responses", async () => {
  const input = "Name the capital of France.";
  const stream = client.responses.stream({ model, input, temperature: 0, max_output_tokens: 100 });
  let pieces = "";
  stream.on("response.output_text.delta", (event) => (pieces += event.delta));
  check((await stream.finalResponse()).output_text === pieces, "pieces add up");
});

step("tools over responses", async () => {
  const tools = [{ type: "function", name: "weather", description: "The weather", parameters, strict: true }];
  const asked = { model, input: "Is it sunny?", tools, tool_choice: "required", max_output_tokens: 100 };
  const { output } = await client.responses.create(asked);
  const call = output.find((item) => item.type === "function_call");
  check(["Paris", "Rome"].includes(JSON.parse(call.arguments).city), "arguments follow the schema");
});

step("completions", async () => {
  const reply = await client.completions.create({ model, prompt: "The capital of France is", max_tokens: 8 });
  check(reply.choices[0].text, "text");
});

step("embeddings", async () => {
  const { data } = await client.embeddings.create({ model: "all-minilm-l6-v2", input: ["a cat", "a kitten"] });
  check(data.length === 2 && data[0].embedding.length === 384, "two vectors");
});

step("speech and transcription", async () => {
  const asked = { model: "tts-1", voice: "F1", input: "Good morning.", response_format: "wav", language: "en" };
  const sound = Buffer.from(await (await client.audio.speech.create(asked)).arrayBuffer());
  const file = await toFile(sound, "morning.wav");
  const heard = await client.audio.transcriptions.create({ model: "whisper-large-v3", file, language: "en" });
  check(heard.text.toLowerCase().includes("morning"), heard.text);
});

await run();
