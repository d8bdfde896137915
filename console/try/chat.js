// The panel of POST /chat/completions: a conversation that streams, with tools, JSON schemas and log probabilities.
import { h, replace, visible } from "../dom.js";
import { duration, plural } from "../format.js";
import { Mistake, present } from "./form.js";
import { waiting } from "./panel.js";
import { facts, pairs, priced, send } from "./reply.js";
import { model, modelField } from "./sources.js";
import { eventsOf } from "./stream.js";
import { Turn } from "./turns.js";

const TAKES = ["model", "messages", "temperature", "max_tokens", "tools", "response_format", "logprobs", "top_logprobs", "stream", "stream_options", "seed"];

export const chat = {
  name: "chat",
  title: "Chat",
  about: "Talks to a chat model. The answer comes as it is written; the whole conversation is sent with each message.",
  verb: "Send",
  fields: [
    modelField("chat"),
    { name: "max_tokens", label: "Longest answer in tokens", kind: "number", min: 1, step: 1, value: 300 },
    { name: "temperature", label: "Temperature", kind: "number", min: 0, max: 2, step: 0.1, value: 0.7 },
    { name: "logprobs", label: "Shade tokens by their probability", kind: "switch" },
    { name: "user", label: "Message", kind: "text", rows: 3, value: "Name three rivers of France.", wide: true },
    { name: "system", label: "System", kind: "text", rows: 2, more: true },
    { name: "schema", label: "JSON schema of the answer", kind: "text", rows: 5, as: "json", more: true },
    { name: "tools", label: "Tools, a JSON list", kind: "text", rows: 5, as: "json", more: true },
    { name: "seed", label: "Seed", kind: "number", step: 1, more: true },
  ],

  prepare(desk) {
    desk.turns = [];
    desk.log = h("div", { class: "conversation" });
    desk.output.append(desk.log);
    const clear = h("button", { class: "button quiet", type: "button", onClick: () => forget(desk) }, "New conversation");
    desk.buttons.append(clear);
    desk.form.control("user").addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) desk.run();
    });
  },

  request({ system, user, schema, tools, logprobs, ...values }, desk) {
    const earlier = desk.turns.flatMap((turn) => turn.messages());
    const messages = [...(system ? [{ role: "system", content: system }] : []), ...earlier, ...(user ? [{ role: "user", content: user }] : [])];
    if (!user && earlier.at(-1)?.role !== "tool") throw new Mistake("Message: write something.");
    const json = present({
      ...values, messages, tools,
      response_format: schema && { type: "json_schema", json_schema: { name: "answer", schema } },
      ...(logprobs && { logprobs: true, top_logprobs: 3 }),
      stream: true, stream_options: { include_usage: true },
    });
    const tail = ')\nfor chunk in stream:\n    if chunk.choices:\n        print(chunk.choices[0].delta.content or "", end="", flush=True)';
    return { path: "v1/chat/completions", json, streams: true, sdk: { call: "chat.completions.create", takes: TAKES, lead: "stream = ", tail } };
  },

  async run(desk, values) {
    const request = this.request(values, desk);
    const user = new Turn("user", values.user ?? "");
    const answer = new Turn("assistant");
    if (values.user) desk.log.append(user.element);
    desk.log.append(answer.element);
    desk.log.setAttribute("aria-busy", "true");
    try {
      const clock = await written(desk, request, answer);
      if (values.user) desk.turns.push({ messages: () => [{ role: "user", content: values.user }] });
      desk.turns.push(answer);
      desk.form.set("user", "");
      return await finish(answer, clock, await model(values.model));
    } catch (error) {
      // What was not answered is not part of the conversation; it stays in its field to be sent again.
      if (error.name !== "AbortError" && !answer.answer.content) [user, answer].forEach(({ element }) => element.remove());
      else answer.element.append(h("p", { class: "muted" }, "This answer was broken off and is not sent again."));
      throw error;
    } finally {
      desk.log.removeAttribute("aria-busy");
    }
  },
};

function forget(desk) {
  desk.stop();
  desk.turns = [];
  replace(desk.log);
  replace(desk.replies);
  desk.say("");
  desk.code.refresh();
}

/** Streams the answer into `turn`, and gives its times and what was counted. */
async function written(desk, request, turn) {
  const clock = { startedMs: performance.now(), firstMs: null, usage: null, finish: null };
  const reply = await send({ ...request, headers: { "X-Service-Progress": "1" } }, desk.signal);
  clock.reply = reply;
  for await (const { event, data } of eventsOf(reply)) {
    if (event === "queue_status") {
      desk.tell(waiting(data));
      continue;
    }
    clock.usage = data.usage ?? clock.usage;
    const [choice] = data.choices;
    if (!choice) continue;
    clock.finish = choice.finish_reason ?? clock.finish;
    turn.take(choice.delta, choice.logprobs);
    if (clock.firstMs === null && (choice.delta.content || choice.delta.tool_calls || choice.delta.reasoning_content)) {
      clock.firstMs = performance.now();
      desk.tell("");
    }
  }
  clock.doneMs = performance.now();
  return clock;
}

function finish(turn, { reply, startedMs, firstMs, doneMs, usage, finish: reason }, entry) {
  const written = usage?.completion_tokens;
  const speed = written > 1 && firstMs !== null && doneMs > firstMs ? ((written - 1) / (doneMs - firstMs)) * 1000 : null;
  const first = duration((firstMs ?? doneMs) - startedMs);
  turn.end(h("div", {}, pairs([
    ["first token after", first],
    ["tokens a second", speed && speed.toFixed(1)],
    ["tokens", usage && `${usage.prompt_tokens} read, ${written} written`],
    ["ended by", reason && visible(reason)],
    ["cost", usage && priced(entry, { input_tokens: usage.prompt_tokens, output_tokens: written })],
  ]), facts(reply)));
  const calls = turn.answer.calls.length;
  if (calls) return `Answered with ${plural(calls, "call")} of tools.`;
  return usage ? `Answered with ${plural(written, "token")}; the first came after ${first}.` : `Answered; the first token came after ${first}.`;
}
