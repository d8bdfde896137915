// Records from the microphone, or says in words why it cannot.
import { h, write } from "../dom.js";
import { button } from "../parts.js";

const REFUSALS = {
  NotAllowedError: "The browser did not allow the microphone. Allow it for this page in the browser's settings, or choose a file.",
  NotFoundError: "No microphone was found. Choose a file instead.",
  NotReadableError: "The microphone is used by another program. Close that, or choose a file.",
  SecurityError: "The browser opens the microphone only for pages over https, or of this machine. Choose a file instead.",
};

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
    } catch ({ name, message }) {
      tell(REFUSALS[name] ?? `The microphone could not be opened: ${message || name}.`);
    }
  }
  const record = button("Record", press);
  return [record, said];
}

async function recordingOf(onFile) {
  if (!navigator.mediaDevices) throw new DOMException("", "SecurityError");
  const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
  const recording = new MediaRecorder(stream);
  const pieces = [];
  recording.ondataavailable = ({ data }) => pieces.push(data);
  recording.onstop = () => {
    for (const track of stream.getTracks()) track.stop();
    const [type] = recording.mimeType.split(";");
    onFile(new File(pieces, `recording.${type.split("/")[1]}`, { type }));
  };
  recording.start();
  return recording;
}
