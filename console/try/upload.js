// Sends a recording too large for a request: a ticket, then the bytes to the ticket's signed address.
import { address, Fault, faultOf, read } from "../api.js";

/** Longest file of a form, in bytes. */
export const DIRECT_BYTES = 4.5 * 1024 * 1024;

// What browsers call it, or what it ends with, where a ticket has another word.
const KINDS = { "x-wav": "wav", wave: "wav", "x-flac": "flac", mp3: "mpeg", m4a: "mp4" };

export function orderOf({ type, name, size }, model) {
  const [, kind = "mpeg"] = /^\w+\/([^;]+)/.exec(type) ?? /\.(\w+)$/.exec(name.toLowerCase()) ?? [];
  return { mime: `audio/${KINDS[kind] ?? kind}`, size, model };
}

/** Uploads `file` and gives its `upload_id`; `onProgress` hears the bytes that are sent. Throws Fault, AbortError. */
export async function upload(file, model, { onProgress, signal }) {
  const ticket = await read("v1/audio/uploads", { json: orderOf(file, model), signal });
  await put(file, ticket, onProgress, signal);
  return ticket.upload_id;
}

/** The server names itself as it knows itself; the page reaches its files at the address that it was loaded from. */
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
    request.onload = async () => (request.status < 300 ? resolve() : reject(await faultOf(new Response(request.responseText, request))));
    request.onerror = () => reject(new Fault("The upload broke off."));
    request.onabort = () => reject(new DOMException("", "AbortError"));
    signal.addEventListener("abort", () => request.abort(), { once: true });
    request.send(file);
  });
}
