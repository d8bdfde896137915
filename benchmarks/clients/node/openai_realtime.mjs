// OpenAI's SDK: live transcription.
import { connect } from "node:net";

import OpenAI from "openai";
import { OpenAIRealtimeWS } from "openai/realtime/ws";

import { check, run, step } from "./steps.mjs";

const model = "voxtral-mini-transcribe";
const transcript = "conversation.item.input_audio_transcription";
const rate = 24000;
const within_ms = 90_000;
const client = new OpenAI({ baseURL: `${process.env.PARLANCE_URL}/v1`, apiKey: process.env.PARLANCE_KEY });
// This SDK insists on wss. A graph on one's own machine has no certificate, so the connection is made without TLS.
const options = { createConnection: ({ host, port }) => connect({ host, port }) };

const settings = (turn_detection) => ({
  type: "transcription",
  audio: {
    input: { format: { type: "audio/pcm", rate }, transcription: { model, language: "en" }, turn_detection },
  },
});

// A short sentence as PCM16 at 24 kHz, with a second of silence behind it.
async function spoken() {
  const asked = { model: "tts-1", voice: "rooom-f-01", input: "Good morning.", response_format: "wav", language: "en" };
  const sound = Buffer.from(await (await client.audio.speech.create(asked)).arrayBuffer());
  const begin = sound.indexOf("data") + 8;
  return Buffer.concat([sound.subarray(begin, begin + sound.readUInt32LE(begin - 4)), Buffer.alloc(2 * rate)]);
}

// A session, and a way to wait for the first event of a kind that nobody has waited for yet.
function open(key) {
  const socket = new OpenAIRealtimeWS({ model, options }, key ? client.withOptions({ apiKey: key }) : client);
  const events = [];
  let wake = () => {};
  const take = (event) => {
    events.push(event);
    wake();
  };
  socket.on("event", take);
  socket.on("error", (error) => error.error || take({ type: "error", message: error.message }));
  const until = async (kind) => {
    const end = Date.now() + within_ms;
    for (;;) {
      const event = events.shift();
      if (event?.type === kind) return event;
      check(event?.type !== "error", JSON.stringify(event));
      check(Date.now() < end, `${kind} comes in time`);
      if (!event) await Promise.race([new Promise((done) => (wake = done)), new Promise((done) => setTimeout(done, 500))]);
    }
  };
  return { socket, until };
}

function append(socket, sound) {
  for (let begin = 0; begin < sound.length; begin += rate / 5) {
    const audio = sound.subarray(begin, begin + rate / 5).toString("base64");
    socket.send({ type: "input_audio_buffer.append", audio });
  }
}

step("live transcription, turns found by the server", async () => {
  const { socket, until } = open();
  await until("session.created");
  socket.send({ type: "session.update", session: settings({ type: "server_vad" }) });
  await until("session.updated");
  append(socket, await spoken());
  const started = await until("input_audio_buffer.speech_started");
  await until("input_audio_buffer.speech_stopped");
  const heard = await until(`${transcript}.completed`);
  socket.close();
  check(heard.item_id === started.item_id && heard.transcript.toLowerCase().includes("morning"), heard.transcript);
  check(heard.usage.type === "duration" && heard.usage.seconds > 0, "seconds are told");
});

step("live transcription, turns that the client commits", async () => {
  const { socket, until } = open();
  await until("session.created");
  socket.send({ type: "session.update", session: settings(null) });
  append(socket, await spoken());
  socket.send({ type: "input_audio_buffer.commit" });
  const item = await until("input_audio_buffer.committed");
  const heard = await until(`${transcript}.completed`);
  socket.close();
  check(heard.item_id === item.item_id && heard.transcript.toLowerCase().includes("morning"), heard.transcript);
});

step("live transcription with a client secret", async () => {
  const expires_after = { anchor: "created_at", seconds: 60 };
  const secret = await client.realtime.clientSecrets.create({ expires_after, session: settings(null) });
  const { socket, until } = open(secret.value);
  const { session } = await until("session.created");
  check(session.audio.input.turn_detection === null, "the session is set as it was ordered");
  append(socket, await spoken());
  socket.send({ type: "input_audio_buffer.commit" });
  const heard = await until(`${transcript}.completed`);
  socket.close();
  check(heard.transcript.toLowerCase().includes("morning"), heard.transcript);
});

step("an error that a live session survives", async () => {
  const { socket, until } = open();
  await until("session.created");
  socket.send({ type: "input_audio_buffer.append", event_id: "mine", audio: "not base64" });
  const { error } = await until("error");
  check(error.type === "invalid_request_error" && error.event_id === "mine", JSON.stringify(error));
  socket.send({ type: "session.update", session: settings(null) });
  await until("session.updated");
  socket.close();
});

await run();
