// Shows what came with a reply: its headers, what it cost, and errors in the server's own words.
import { call, Fault, read } from "../api.js";
import { h, visible } from "../dom.js";
import { duration, money } from "../format.js";

/** What `quantities` cost at the prices of `model`, an entry of the list of models; null where a price is not told. */
export function priced(model, quantities) {
  const prices = model?.price_micro_eur;
  if (!prices || Object.keys(quantities).every((unit) => !(unit in prices))) return null;
  const total = Object.entries(quantities).reduce((sum, [unit, amount]) => sum + (amount ?? 0) * (prices[unit] ?? 0), 0);
  return `about ${money(Math.ceil(total / 1e6))}`;
}

/** A table of names and values, without those that are not there. */
export function pairs(entries) {
  const rows = entries.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h("dl", { class: "facts" }, rows.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

const requestLink = (id) => id && h("a", { href: `#requests/${encodeURIComponent(id)}` }, visible(id));

function timing(header) {
  if (!header) return null;
  const parts = [...header.matchAll(/([a-z]+);dur=([\d.]+)/g)];
  return parts.map(([, name, ms]) => `${name} ${duration(Number(ms))}`).join(" · ");
}

function rate(headers) {
  const [limit, remaining, reset] = ["limit", "remaining", "reset"].map((part) => headers.get(`x-ratelimit-${part}`));
  return limit && `${remaining} of ${limit} requests left, more in ${reset} s`;
}

const SHOWN = /^(x-voice|x-service-|idempotent-replayed|content-type)/;

/** The headers of `reply`, in a part that opens; then what the request was billed is looked up, if the server keeps it. */
export function facts(reply) {
  const { headers } = reply;
  const id = headers.get("x-request-id");
  const bill = h("span", {}, "…");
  const others = [...headers].filter(([name]) => SHOWN.test(name)).map(([name, value]) => [name, visible(value)]);
  const list = pairs([
    ["status", String(reply.status)],
    ["request", requestLink(id)],
    ["server-timing", timing(headers.get("server-timing"))],
    ["rate limit", rate(headers)],
    ["billed", bill],
    ...others,
  ]);
  const lookUp = async () => bill.replaceChildren(await billed(id));
  return h("details", { class: "reply", onToggle: (event) => event.target.open && lookUp() }, h("summary", {}, "Headers and cost"), list);
}

async function billed(id) {
  try {
    const { cost_micro_eur: cost } = await read(`console/requests/${encodeURIComponent(id)}`);
    return cost === null ? "nothing yet" : money(cost);
  } catch {
    return "not told for this request";
  }
}

/** What went wrong, with a button that tries again once the server allows it. */
export function failure(error, retry) {
  const { code, type, status, requestId, retryAfterS } = error;
  const button = h("button", { class: "button quiet", type: "button", onClick: retry }, "Try again");
  const facts = pairs([
    ["code", code && visible(code)],
    ["type", type && type !== code && visible(type)],
    ["status", status ? String(status) : null],
    ["request", requestLink(requestId)],
  ]);
  if (retryAfterS > 0) countDown(button, retryAfterS);
  return h("div", { class: "error" }, h("p", {}, error.message), error instanceof Fault && facts, retry && button);
}

function countDown(button, waitS) {
  const dueMs = Date.now() + waitS * 1000;
  button.disabled = true;
  const tick = () => {
    const leftS = Math.ceil((dueMs - Date.now()) / 1000);
    button.disabled = leftS > 0;
    button.textContent = leftS > 0 ? `Try again in ${leftS} s` : "Try again";
    if (leftS > 0 && (button.isConnected || leftS > waitS - 2)) setTimeout(tick, 250);
  };
  tick();
}

/** Sends a request of a panel, described as for `code.js`. */
export function send({ path, method, json, pairs: fields, file, headers }, signal) {
  return call(path, { method, json, form: fields && formData(fields, file), headers, signal });
}

function formData(fields, file) {
  const form = new FormData();
  for (const [name, value] of fields) form.append(name, value);
  if (file) form.append("file", file, file.name);
  return form;
}
