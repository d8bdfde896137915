// Sends what panels ask, and shows what came: headers, the cost, errors in the server's own words, events of streams.
import { call, Fault, parsed, read } from "../api.js";
import { h, visible } from "../dom.js";
import { duration, money } from "../format.js";
import { button, pairs } from "../parts.js";

/** What `quantities` cost at the prices of `model`, an entry of a list of models; null where no price is told. */
export function priced(model, quantities) {
  const prices = model?.price_micro_eur ?? {};
  const known = Object.entries(quantities).filter(([unit, amount]) => amount && unit in prices);
  return known.length ? `about ${money(Math.ceil(known.reduce((sum, [unit, amount]) => sum + amount * prices[unit], 0) / 1e6))}` : null;
}

const requestLink = (id) => id && h("a", { href: `#requests/${encodeURIComponent(id)}` }, visible(id));

const timing = (header) => [...header.matchAll(/(\w+);dur=([\d.]+)/g)].map(([, name, ms]) => `${name} ${duration(Number(ms))}`).join(" · ");

const SHOWN = /^(x-voice|x-service-|content-type)/;

/** The headers of `reply`, in a part that opens; then what the request was billed is looked up. */
export function facts(reply) {
  const header = (name) => reply.headers.get(name);
  const id = header("x-request-id");
  const bill = h("span", {}, "…");
  const list = pairs([
    ["status", String(reply.status)],
    ["request", requestLink(id)],
    ["server-timing", timing(header("server-timing") ?? "")],
    ["rate limit", `${header("x-ratelimit-remaining")} of ${header("x-ratelimit-limit")} left, more in ${header("x-ratelimit-reset")} s`],
    ["billed", bill],
    ...[...reply.headers].filter(([name]) => SHOWN.test(name)).map(([name, value]) => [name, visible(value)]),
  ]);
  const lookUp = async ({ target }) => target.open && bill.replaceChildren(await billed(id));
  return h("details", { onToggle: lookUp }, h("summary", {}, "Headers and cost"), list);
}

async function billed(id) {
  try {
    return money((await read(`console/requests/${encodeURIComponent(id)}`)).cost_micro_eur ?? 0);
  } catch {
    return "not told for this request";
  }
}

/** What went wrong, with a button that tries again once the server allows it. */
export function failure({ message, code, status, requestId, retryAfterS }, retry) {
  const again = button("Try again", retry);
  if (retryAfterS) countDown(again, Date.now() + retryAfterS * 1000);
  const details = pairs([
    ["code", code && visible(code)],
    ["status", status],
    ["request", requestLink(requestId)],
  ]);
  return h("div", { class: "error" }, h("p", {}, message), details, again);
}

function countDown(again, dueMs) {
  const leftS = Math.ceil((dueMs - Date.now()) / 1000);
  again.disabled = leftS > 0;
  again.textContent = leftS > 0 ? `Try again in ${leftS} s` : "Try again";
  if (leftS > 0) setTimeout(countDown, 250, again, dueMs);
}

/** Sends a request of a panel, described as for `code.js`. */
export function send({ path, json, pairs: fields, file, headers }, signal) {
  if (!fields) return call(path, { json, headers, signal });
  const form = new FormData();
  for (const [name, value] of fields) form.append(name, value);
  form.append("file", file, file.name);
  return call(path, { form, headers, signal });
}

const PROGRESS = { "X-Service-Progress": "1" };

/**
 * Sends `request` and gives the data of its events. `tell` hears in words how long it waits, `onReply` gets the reply.
 * Throws Fault for an error in the stream, and for a stream that breaks off.
 */
export async function* streamed(request, signal, tell, onReply) {
  const reply = await send({ ...request, headers: PROGRESS }, signal);
  const requestId = reply.headers.get("x-request-id");
  onReply(reply);
  try {
    for await (const { event, data } of parsed(reply.body)) {
      if (data === "[DONE]") return;
      const content = JSON.parse(data);
      if (content.error) throw new Fault(content.error.message, { ...content.error, requestId });
      if (event === "queue_status") tell(waiting(content));
      else yield content;
    }
  } catch (error) {
    if (error instanceof Fault || error.name === "AbortError") throw error;
    throw new Fault("The connection to the server was lost.", { code: "disconnected", requestId });
  }
}

const waiting = ({ position, of, eta_ms: etaMs, why }) =>
  `Position ${position} of ${of}${etaMs ? `, about ${duration(etaMs)}` : ""}${why === "queue" ? "" : "; the engine starts"}`;
