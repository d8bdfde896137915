// The microphone: who opens it is told in words why it cannot be. A button that records from it.
import { h, write } from "../dom.js";
import { button } from "../parts.js";
import { Mistake } from "./form.js";

const REFUSALS = {
  NotAllowedError: "The browser did not allow the microphone. Allow it for this page in the browser's settings, or choose a file.",
  NotFoundError: "No microphone was found. Choose a file instead.",
  NotReadableError: "The microphone is used by another program. Close that, or choose a file.",
  SecurityError: "The browser opens the microphone only for pages over https, or of this machine. Choose a file instead.",
};

/** Its sound, until `close`. Throws Mistake. */
export async function microphone() {
  try {
    if (!navigator.mediaDevices) throw new DOMException("", "SecurityError");
    return await navigator.mediaDevices.getUserMedia({ audio: true });
  } catch ({ name, message }) {
    throw new Mistake(REFUSALS[name] ?? `The microphone could not be opened: ${message || name}.`);
  }
}

export const close = (stream) => stream.getTracks().forEach((track) => track.stop());

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
