// The panel of POST /chat/completions: a conversation that streams, with tools, JSON schemas and log probabilities.
import { h, replace, visible } from "../dom.js";
import { duration, plural } from "../format.js";
import { button, muted, pairs } from "../parts.js";
import { Mistake, present } from "./form.js";
import { facts, priced, streamed } from "./reply.js";
import { model, modelField } from "./sources.js";
import { Turn } from "./turns.js";

export const chat = {
  name: "chat",
  title: "Chat",
  about: "Talks to a chat model. The answer comes as it is written; the whole conversation is sent with each message.",
  verb: "Send",
  fields: [
    modelField("chat"),
    { name: "max_tokens", label: "Longest answer in tokens", kind: "number", min: 1, value: 300 },
    { name: "temperature", label: "Temperature", kind: "number", min: 0, max: 2, step: 0.1, value: 0.7 },
    { name: "logprobs", label: "Shade tokens by their probability", kind: "switch" },
    { name: "user", label: "Message", kind: "text", value: "Name three rivers of France.", wide: true },
    { name: "system", label: "System", kind: "text", more: true },
    { name: "schema", label: "JSON schema of the answer", kind: "text", rows: 5, as: "json", more: true },
    { name: "tools", label: "Tools, a JSON list", kind: "text", rows: 5, as: "json", more: true },
  ],

  prepare(desk) {
    desk.turns = [];
    desk.buttons.append(button("New conversation", () => forget(desk)));
    desk.form.control("user").addEventListener("keydown", (event) => event.key === "Enter" && event.ctrlKey && desk.run());
  },

  request({ system, user, schema, tools, logprobs, ...values }, desk) {
    const earlier = desk.turns.flatMap((turn) => turn.messages());
    if (!user && earlier.at(-1)?.role !== "tool") throw new Mistake("Message: write something.");
    const message = (role, content) => (content ? [{ role, content }] : []);
    const json = present({
      ...values, logprobs, tools,
      messages: [...message("system", system), ...earlier, ...message("user", user)],
      top_logprobs: logprobs && 3,
      response_format: schema && { type: "json_schema", json_schema: { name: "answer", schema } },
      stream: true, stream_options: { include_usage: true },
    });
    return { path: "v1/chat/completions", json, streams: true };
  },

  async run(desk, values) {
    const request = this.request(values, desk);
    const asked = values.user ? [new Turn("user", values.user)] : [];
    const turn = new Turn("assistant");
    const turns = [...asked, turn];
    desk.output.append(...turns.map(({ element }) => element));
    try {
      const clock = await written(desk, request, turn);
      desk.turns.push(...turns);
      desk.form.set("user");
      return finish(turn, clock, await model(values.model));
    } catch (error) {
      // What was not answered is no part of the conversation; it stays in its field, to be sent again.
      if (turn.content) turn.element.append(muted("This answer broke off; it is not sent again."));
      else turns.forEach(({ element }) => element.remove());
      throw error;
    }
  },
};

function forget(desk) {
  desk.stop();
  desk.turns = [];
  replace(desk.output);
  replace(desk.replies);
  desk.say("");
  desk.code.refresh();
}

/** Streams the answer into `turn`, and gives its times and what was counted. */
async function written(desk, request, turn) {
  const clock = { startedMs: performance.now(), firstMs: null, usage: {}, reason: "" };
  const onReply = (reply) => (clock.reply = reply);
  for await (const { usage, choices } of streamed(request, desk.signal, (text) => desk.tell(text), onReply)) {
    clock.usage = usage ?? clock.usage;
    const [choice] = choices;
    if (!choice) continue;
    clock.reason = choice.finish_reason ?? clock.reason;
    turn.take(choice.delta, choice.logprobs);
    if (clock.firstMs === null && Object.keys(choice.delta).some((name) => name !== "role" && choice.delta[name])) {
      clock.firstMs = performance.now();
      desk.tell("");
    }
  }
  return { ...clock, doneMs: performance.now() };
}

function finish(turn, { reply, startedMs, firstMs, doneMs, usage, reason }, entry) {
  const { prompt_tokens: input = 0, completion_tokens: output = 0 } = usage;
  const first = duration((firstMs ?? doneMs) - startedMs);
  const list = pairs([
    ["first token after", first],
    ["tokens a second", output > 1 && (((output - 1) / (doneMs - firstMs)) * 1000).toFixed(1)],
    ["tokens", `${input} read, ${output} written`],
    ["ended by", visible(reason)],
    ["cost", priced(entry, { input_tokens: input, output_tokens: output })],
  ]);
  turn.end(h("div", {}, list, facts(reply)));
  const calls = turn.calls.length ? ` and ${plural(turn.calls.length, "call")} of tools` : "";
  return `Answered with ${plural(output, "token")}${calls}; the first came after ${first}.`;
}
