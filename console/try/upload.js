// Sends a recording too large for a request: a ticket, then the bytes to the ticket's signed address.
import { address, Fault, read } from "../api.js";

/** Longest file of a form, in bytes; the list of models may say otherwise. */
export const DIRECT_BYTES = 4.5 * 1024 * 1024;

// Names of types that browsers use and a ticket does not know.
const TYPES = { "audio/x-wav": "audio/wav", "audio/wave": "audio/wav", "video/webm": "audio/webm", "video/mp4": "audio/mp4", "audio/mp3": "audio/mpeg", "audio/x-flac": "audio/flac" };
const ENDINGS = { mp3: "audio/mpeg", m4a: "audio/mp4", aac: "audio/aac", wav: "audio/wav", webm: "audio/webm", ogg: "audio/ogg", opus: "audio/opus", flac: "audio/flac" };

/** The type of `file` as a ticket wants it. */
export function typeOf(file) {
  const type = file.type.split(";")[0];
  return TYPES[type] || type || ENDINGS[file.name.split(".").pop().toLowerCase()] || "audio/mpeg";
}

/** Uploads `file` and gives its `upload_id`; `onProgress` hears the bytes that are sent. Throws Fault, AbortError. */
export async function upload(file, model, { onProgress, signal }) {
  const order = { mime: typeOf(file), size: file.size, model };
  const ticket = await read("v1/audio/uploads", { json: order, signal });
  await put(file, ticket, onProgress, signal);
  return ticket.upload_id;
}

// The server names itself as it knows itself; the page reaches the same path at the address that it was loaded from.
export function reachable(url) {
  const { origin, pathname, search } = new URL(url, address(""));
  const [, path] = /\/(files\/.*)$/.exec(pathname) ?? [];
  return origin === location.origin || !path ? url : address(path + search).href;
}

// XMLHttpRequest, because fetch does not tell how much of a body is sent.
function put(file, { upload_url: url, content_type: type }, onProgress, signal) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("PUT", reachable(url));
    request.setRequestHeader("Content-Type", type);
    request.upload.onprogress = ({ loaded }) => onProgress(loaded);
    request.onload = () => (request.status < 300 ? resolve() : reject(faultOf(request)));
    request.onerror = () => reject(new Fault("The upload broke off.", { code: "unreachable" }));
    request.onabort = () => reject(new DOMException("stopped", "AbortError"));
    signal.addEventListener("abort", () => request.abort(), { once: true });
    request.send(file);
  });
}

function faultOf(request) {
  let error = {};
  try {
    ({ error } = JSON.parse(request.responseText));
  } catch {
    // A proxy answered, not the server: its status has to do.
  }
  const wait = request.getResponseHeader("retry-after");
  return new Fault(error.message ?? `The upload was answered with ${request.status}.`, {
    status: request.status, type: error.type, code: error.code,
    requestId: request.getResponseHeader("x-request-id"), retryAfterS: wait && Number(wait),
  });
}
