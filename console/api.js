// The way to the server: the session's key, calls and streams with it, and the server's errors as `Fault`.

const ROOT = new URL("../", import.meta.url);
const STORED = "parlance-key";

class Session extends EventTarget {
  #key = sessionStorage.getItem(STORED) ?? "";

  get key() {
    return this.#key;
  }

  /** Takes another key. With `remember` it outlasts a reload: it is in the storage of this tab until that is closed. */
  open(key, remember = false) {
    this.#key = key;
    if (remember) sessionStorage.setItem(STORED, key);
    else sessionStorage.removeItem(STORED);
    this.dispatchEvent(new Event("change"));
  }
}

export const session = new Session();

/** What went wrong, as the server says it. `status` is 0 where no reply came. */
export class Fault extends Error {
  constructor(message, { status = 0, type = null, code = null, requestId = null, retryAfterS = null } = {}) {
    super(message);
    this.name = "Fault";
    Object.assign(this, { status, type, code, requestId, retryAfterS });
  }
}

/** Where `path` is, as `v1/models`: below the root of the API, wherever a proxy has put that. */
export const address = (path) => new URL(path.replace(/^\/+/, ""), ROOT);

/**
 * Calls the server with the session's key and gives the reply, whose status is below 400.
 * `json` is sent as such; `form` is a FormData. Throws Fault, or AbortError of `signal`.
 */
export async function call(path, { method, json, form, headers, signal } = {}) {
  const sent = new Headers(headers);
  if (session.key && !sent.has("Authorization")) sent.set("Authorization", `Bearer ${session.key}`);
  if (json !== undefined) sent.set("Content-Type", "application/json");
  const body = json === undefined ? form : JSON.stringify(json);
  const request = { method: method ?? (body === undefined ? "GET" : "POST"), headers: sent, body, signal };
  const reply = await send(address(path), { ...request, cache: "no-store", credentials: "omit" });
  if (!reply.ok) throw await faultOf(reply);
  return reply;
}

async function send(url, request) {
  try {
    return await fetch(url, request);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Fault("The server cannot be reached.", { code: "unreachable" });
  }
}

/** What a reply says is wrong. */
export async function faultOf(reply) {
  const { error } = await reply.json().catch(() => ({}));
  const retryAfter = reply.headers.get("Retry-After");
  return new Fault(error?.message ?? `The server answered ${reply.status} ${reply.statusText}.`, {
    status: reply.status,
    type: error?.type ?? null,
    code: error?.code ?? null,
    requestId: reply.headers.get("X-Request-ID"),
    retryAfterS: retryAfter === null ? null : Number(retryAfter),
  });
}

export async function read(path, options) {
  return (await call(path, options)).json();
}

/**
 * The server-sent events at `path`. A stream on which nothing came for `idleS` seconds, not even a comment, is a Fault.
 */
export async function* events(path, { signal, idleS }) {
  const silence = new AbortController();
  const headers = { Accept: "text/event-stream" };
  let timer = 0;
  const rewind = () => {
    clearTimeout(timer);
    timer = setTimeout(() => silence.abort(), idleS * 1000);
  };
  rewind();
  try {
    const reply = await call(path, { headers, signal: AbortSignal.any([signal, silence.signal]) });
    yield* parsed(reply.body, rewind);
  } catch (error) {
    if (error instanceof Fault || signal.aborted) throw error;
    throw new Fault("The connection to the server was lost.", { code: "disconnected" });
  } finally {
    clearTimeout(timer);
    silence.abort();
  }
}

/** The server-sent events in a body as `{id, event, data}`, `data` as text; `onBytes` hears of whatever comes. */
export async function* parsed(body, onBytes = () => {}) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let fields = {};
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      onBytes();
      const lines = (rest + value).split(/\r\n|\n|\r(?!$)/);
      rest = lines.pop();
      for (const line of lines) {
        if (line) take(fields, line);
        else {
          if (fields.data !== undefined) yield { id: fields.id ?? null, event: fields.event ?? "message", data: fields.data };
          fields = {};
        }
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function take(fields, line) {
  const [, name, value] = /^([^:]*):? ?(.*)$/s.exec(line);
  if (name === "data") fields.data = fields.data === undefined ? value : `${fields.data}\n${value}`;
  else if (name === "id" || name === "event") fields[name] = value;
}
