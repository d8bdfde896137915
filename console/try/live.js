// Writes down what the microphone hears while somebody speaks: a session of GET /v1/realtime.
import { address, Fault, read } from "../api.js";
import { h, replace, write } from "../dom.js";
import { joined, muted } from "../parts.js";
import { round } from "./drawing.js";
import { present } from "./form.js";
import { close, microphone } from "./recorder.js";
import { priced } from "./reply.js";
import { model } from "./sources.js";

const SOUND = "input_audio_buffer.append";
const TEXT = "conversation.item.input_audio_transcription";

/** Listens until `desk` is stopped or the server ends the session, and gives what is to be said of it. Throws Fault, Mistake. */
export async function listen(desk, { model: id, language, prompt }) {
  const context = new AudioContext();
  const input = { format: { type: "audio/pcm", rate: context.sampleRate }, transcription: present({ model: id, language, prompt }) };
  let stream;
  const hush = () => stream && close(stream);
  desk.signal.addEventListener("abort", hush);
  try {
    const json = { session: { type: "transcription", audio: { input } } };
    const { value } = await read("v1/realtime/client_secrets", { json, signal: desk.signal });
    await context.audioWorklet.addModule(new URL("samples.js", import.meta.url));
    stream = await microphone();
    desk.signal.throwIfAborted();
    const samples = new AudioWorkletNode(context, "samples", { channelCount: 1, channelCountMode: "explicit" });
    // What leads nowhere may not run; it makes no sound.
    context.createMediaStreamSource(stream).connect(samples).connect(context.destination);
    const url = address("v1/realtime").href.replace("http", "ws");
    const { heard_s: seconds } = await written(new WebSocket(url, ["realtime", `openai-insecure-api-key.${value}`]), samples.port, desk);
    return `${joined(`Heard: ${round(seconds, 1)} s of speech`, priced(await model(id), { audio_seconds: Math.ceil(seconds) }))}.`;
  } finally {
    hush();
    context.close();
  }
}

/** Sends what `port` gives and shows what comes, until the socket is closed. Gives the last ledger. Throws Fault. */
async function written(socket, port, desk) {
  const [text, seconds, turns] = [h("div", { class: "transcript", role: "log" }), muted(), new Map()];
  let [fault, last] = [null, null];
  const tell = ({ message, ...error }) => desk.say((fault = new Fault(message, error)).message);
  const turn = (id) => turns.get(id) ?? (turns.set(id, text.appendChild(h("p", { dir: "auto" }))), turns.get(id));
  const count = (ledger) => write(seconds, sentence(ledger));
  const send = (type, fields) => socket.readyState === WebSocket.OPEN && socket.send(JSON.stringify({ type, ...fields }));
  const events = {
    "session.created": () => desk.say("Listening: speak …"),
    [`${TEXT}.delta`]: ({ item_id: id, delta }) => turn(id).append(delta),
    [`${TEXT}.completed`]: ({ item_id: id, transcript, parlance }) => (write(turn(id), transcript), count(parlance.ledger)),
    [`${TEXT}.failed`]: ({ error, parlance }) => (tell(error), count(parlance.ledger)),
    "parlance.session.ledger": ({ ledger }) => count((last = ledger)),
    "parlance.session.expiring": ({ closes_in_s: left }) => desk.say(`The server ends the session in ${left} s.`),
    error: ({ error }) => tell(error),
  };
  replace(desk.output, text, seconds);
  // What stands in a busy part is not read out.
  desk.output.ariaBusy = "false";
  port.onmessage = ({ data }) => send(SOUND, { audio: btoa(String.fromCharCode(...new Uint8Array(data.buffer))) });
  socket.onmessage = ({ data }) => {
    const event = JSON.parse(data);
    events[event.type]?.(event);
  };
  desk.signal.addEventListener("abort", () => {
    port.onmessage = null;
    desk.say("Writing down the last words …");
    send("parlance.session.end");
  });
  const { code, reason } = await new Promise((resolve) => (socket.onclose = resolve));
  if (last) return last;
  throw fault ?? new Fault(reason ? `the session was closed: ${reason}` : `the session was refused or broke off (${code}). Perhaps this key has too many streams open.`);
}

const sentence = ({ heard_s: heard, silence_s: silence, unheard_s: unheard }) =>
  `Heard ${round(heard, 1)} s, silence ${round(silence, 1)} s, unheard ${round(unheard, 1)} s.`;
