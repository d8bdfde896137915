// The microphone: a button that records from it, and a live session, which writes down what it hears.
import { address, Fault, read } from "../api.js";
import { h, replace, write } from "../dom.js";
import { button, joined, muted, round } from "../parts.js";
import { Mistake, present } from "./form.js";
import { priced } from "./reply.js";
import { model } from "./sources.js";

const REFUSALS = {
  NotAllowedError: "The browser did not allow the microphone. Allow it for this page in the browser's settings, or choose a file.",
  NotFoundError: "No microphone was found. Choose a file instead.",
  NotReadableError: "The microphone is used by another program. Close that, or choose a file.",
  SecurityError: "The browser opens the microphone only for pages over https, or of this machine. Choose a file instead.",
};

/** Its sound, until `close`. Throws Mistake. */
async function microphone() {
  try {
    if (!navigator.mediaDevices) throw new DOMException("", "SecurityError");
    return await navigator.mediaDevices.getUserMedia({ audio: true });
  } catch ({ name, message }) {
    throw new Mistake(REFUSALS[name] ?? `The microphone could not be opened: ${message || name}.`);
  }
}

const close = (stream) => stream.getTracks().forEach((track) => track.stop());

/** A button that records, and gives each recording as a File to `onRecording`. */
export function recorder(onRecording) {
  const said = h("span", { class: "muted", role: "status" });
  let recording = null;
  const tell = (text) => {
    write(record, recording ? "Stop recording" : "Record");
    write(said, text);
  };
  async function press() {
    if (recording) return recording.stop();
    try {
      recording = await recordingOf((file) => {
        recording = null;
        tell("Recorded.");
        onRecording(file);
      });
      tell("Recording …");
    } catch ({ message }) {
      tell(message);
    }
  }
  const record = button("Record", press);
  return [record, said];
}

async function recordingOf(onFile) {
  const stream = await microphone();
  const recording = new MediaRecorder(stream);
  const pieces = [];
  recording.ondataavailable = ({ data }) => pieces.push(data);
  recording.onstop = () => {
    close(stream);
    const [type] = recording.mimeType.split(";");
    onFile(new File(pieces, `recording.${type.split("/")[1]}`, { type }));
  };
  recording.start();
  return recording;
}

const TEXT = "conversation.item.input_audio_transcription";

/** Writes down what it hears until `desk` is stopped or the server ends the session; gives what is to be said of it. */
export async function listen(desk, { model: id, language, prompt }) {
  const context = new AudioContext();
  const input = { format: { type: "audio/pcm", rate: context.sampleRate }, transcription: present({ model: id, language, prompt }) };
  let stream;
  try {
    const json = { session: { type: "transcription", audio: { input } } };
    const { value } = await read("v1/realtime/client_secrets", { json, signal: desk.signal });
    await context.audioWorklet.addModule(new URL("samples.js", import.meta.url));
    stream = await microphone();
    desk.signal.throwIfAborted();
    desk.signal.addEventListener("abort", () => close(stream));
    const samples = new AudioWorkletNode(context, "samples", { channelCount: 1, channelCountMode: "explicit" });
    // It makes no sound, but what leads nowhere may not run.
    context.createMediaStreamSource(stream).connect(samples).connect(context.destination);
    const socket = new WebSocket(address("v1/realtime").href.replace("http", "ws"), ["realtime", `openai-insecure-api-key.${value}`]);
    const { heard_s: seconds } = await written(socket, samples.port, desk);
    return `${joined(`Heard: ${round(seconds, 1)} s of speech`, priced(await model(id), { audio_seconds: Math.ceil(seconds) }))}.`;
  } finally {
    if (stream) close(stream);
    context.close();
  }
}

// Sends what `port` gives and shows what comes, until the socket is closed. Gives the last ledger. Throws Fault.
async function written(socket, port, desk) {
  const [text, seconds, turns] = [h("section", { class: "transcript", role: "log" }), muted(), {}];
  let [fault, last] = [];
  const turn = (id) => (turns[id] ??= text.appendChild(h("p", { dir: "auto" })));
  const send = (event) => socket.readyState === WebSocket.OPEN && socket.send(JSON.stringify(event));
  const end = () => {
    port.onmessage = null;
    desk.say("Writing down the last words …");
    send({ type: "parlance.session.end" });
  };
  const told = {
    "session.created": () => (desk.signal.aborted ? end() : desk.say("Listening …")),
    [`${TEXT}.delta`]: ({ item_id: id, delta }) => turn(id).append(delta),
    [`${TEXT}.completed`]: ({ item_id: id, transcript }) => write(turn(id), transcript),
    "parlance.session.ledger": ({ ledger }) => (last = ledger),
    "parlance.session.expiring": ({ closes_in_s: left }) => desk.say(`The server ends the session in ${left} s.`),
  };
  socket.onmessage = ({ data }) => {
    const event = JSON.parse(data);
    told[event.type]?.(event);
    const ledger = event.ledger ?? event.parlance?.ledger;
    if (ledger) write(seconds, sentence(ledger));
    // A turn that failed, or what the session does not take: it goes on, unless a close follows.
    if (event.error) desk.say((fault = new Fault(event.error.message, event.error)).message);
  };
  port.onmessage = ({ data }) => send({ type: "input_audio_buffer.append", audio: btoa(String.fromCharCode(...new Uint8Array(data.buffer))) });
  desk.signal.addEventListener("abort", end);
  replace(desk.output, text, seconds);
  desk.output.ariaBusy = "false"; // what is busy is not read out
  const { code, reason } = await new Promise((resolve) => (socket.onclose = resolve));
  if (last) return last;
  throw (reason && fault) || new Fault(reason || `The session was refused or broke off (${code}). Perhaps too many streams of this key are open.`);
}

const sentence = ({ heard_s: heard, silence_s: silence, unheard_s: unheard }) =>
  `Heard ${round(heard, 1)} s, silence ${round(silence, 1)} s, unheard ${round(unheard, 1)} s.`;
