// Writes a request as a call of curl, in Python and in JavaScript. The key is always a variable of the environment.
import { address } from "../api.js";
import { present } from "./form.js";

// Marks that cannot be seen, or turn the direction of writing, are written out: a copied call is what one reads.
const UNSEEN = /[\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
const escape = (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`;

/** `value` as JSON, which is a literal of JavaScript, and of Python where it is a text. */
const literal = (value, indent) => JSON.stringify(value, null, indent).replace(UNSEEN, escape);

const shell = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** The name of a file, where it can be shown and typed; otherwise a plain one with its ending. */
function fileName({ name }) {
  const isPlain = name.length < 100 && !/[\u0000-\u001f"\\$`]/.test(name) && name.search(UNSEEN) < 0;
  return isPlain ? name : `recording${/\.[a-z0-9]{1,5}$/i.exec(name)?.[0] ?? ""}`;
}

/** A piece of Python that stands in a literal as it is. */
class Expression {
  constructor(text) {
    this.text = text;
  }
}

const CONSTANTS = new Map([[true, "True"], [false, "False"], [null, "None"]]);

function python(value, indent = "    ") {
  if (value instanceof Expression) return value.text;
  if (CONSTANTS.has(value)) return CONSTANTS.get(value);
  if (typeof value !== "object") return literal(value);
  const isList = Array.isArray(value);
  const inner = `${indent}    `;
  const items = Object.entries(value).map(([key, item]) => `${isList ? "" : `${literal(key)}: `}${python(item, inner)}`);
  const [open, close] = isList ? "[]" : "{}";
  const short = open + items.join(", ") + close;
  return short.length < 90 ? short : `${open}\n${items.map((item) => `${inner}${item},\n`).join("")}${indent}${close}`;
}

const methodOf = ({ json, pairs }) => (json || pairs ? "POST" : "GET");
const headersOf = ({ json, headers }) => ({ ...(json && { "Content-Type": "application/json" }), ...headers });
const urlOf = ({ path }) => address(path).href;

export function curl(request) {
  const { streams, saves, keyless, json, pairs = [], file } = request;
  const parts = [`curl${streams ? " -N" : ""}${saves ? ` -o ${saves}` : ""} ${shell(urlOf(request))}`];
  if (!keyless) parts.push('-H "Authorization: Bearer $PARLANCE_KEY"');
  for (const [name, value] of Object.entries(headersOf(request))) parts.push(`-H ${shell(`${name}: ${value}`)}`);
  if (json) parts.push(`-d ${shell(literal(json, 2))}`);
  for (const [name, value] of pairs) parts.push(`--form-string ${shell(`${name}=${value.replace(UNSEEN, "")}`)}`);
  if (file) parts.push(`-F ${shell(`file=@"${fileName(file)}"`)}`);
  return parts.join(" \\\n  ");
}

/** `request` in Python, with httpx. */
export function inPython(request) {
  const { saves, streams, keyless, json, pairs, file, headers } = request;
  const key = keyless ? {} : { Authorization: new Expression("f\"Bearer {os.environ['PARLANCE_KEY']}\"") };
  const files = file && { file: new Expression(`open(${literal(fileName(file))}, "rb")`) };
  const named = present({ headers: { ...key, ...headers }, json, data: pairs && Object.fromEntries(pairs), files, timeout: 300 });
  const lines = Object.entries(named).map(([name, value]) => `    ${name}=${python(value)},\n`).join("");
  const last = saves ? `open("${saves}", "wb").write(reply.content)` : `print(reply.${streams ? "text" : "json()"})`;
  return `import os

import httpx

reply = httpx.${methodOf(request).toLowerCase()}(
    ${literal(urlOf(request))},
${lines})
reply.raise_for_status()
${last}
`;
}

export function inJavaScript(request) {
  const { saves, streams, json, pairs, file, keyless } = request;
  const name = file && literal(fileName(file));
  const key = keyless ? [] : ["Authorization: `Bearer ${process.env.PARLANCE_KEY}`"];
  const headers = [...key, ...Object.entries(headersOf(request)).map((header) => header.map((text) => literal(text)).join(": "))];
  return [
    file && `import { openAsBlob } from ${literal("node:fs")};\n`,
    saves && `import { writeFile } from ${literal("node:fs/promises")};\n`,
    pairs && "const form = new FormData();",
    file && `form.append("file", await openAsBlob(${name}), ${name});`,
    ...(pairs ?? []).map((pair) => `form.append(${pair.map((text) => literal(text)).join(", ")});`),
    `const reply = await fetch(${literal(urlOf(request))}, {`,
    `  method: "${methodOf(request)}",\n  headers: { ${headers.join(", ")} },`,
    json && `  body: JSON.stringify(${literal(json, 2).replaceAll("\n", "\n  ")}),`,
    pairs && "  body: form,",
    "});\nif (!reply.ok) throw new Error(await reply.text());",
    saves ? `await writeFile("${saves}", Buffer.from(await reply.arrayBuffer()));`
      : streams ? "for await (const piece of reply.body.pipeThrough(new TextDecoderStream())) process.stdout.write(piece);"
        : "console.dir(await reply.json(), { depth: null });",
  ].filter(Boolean).join("\n");
}

const TICKETS = "v1/audio/uploads";

/**
 * The three calls of a recording under a ticket, by language: the ticket, the upload, the transcription. `order` is the body of the first call, `request` is the
 * last one.
 */
export function ticketTexts(file, order, { path, json }) {
  const name = literal(fileName(file));
  const last = { path, json: { ...json, upload_id: "UPLOAD_ID" } };
  const field = (member) => `"$(jq -r .${member} <<<"$ticket")"`;
  const shellText = `ticket=$(${curl({ path: TICKETS, json: order })})
curl -T ${shell(fileName(file))} -H 'Content-Type: ${order.mime}' ${field("upload_url")}
${curl(last).replace('"UPLOAD_ID"', `"'${field("upload_id")}'"`)}`;
  const pythonText = `import os

import httpx

key = {"Authorization": f"Bearer {os.environ['PARLANCE_KEY']}"}
recording = open(${name}, "rb").read()
with httpx.Client(base_url=${literal(address("v1").href)}, timeout=900) as client:
    ticket = client.post("/audio/uploads", json=${python(order)}, headers=key).raise_for_status().json()
    client.put(ticket["upload_url"], content=recording, headers={"content-type": ticket["content_type"]}).raise_for_status()
    body = ${python(json)}
    reply = client.post("/audio/transcriptions", json=body | {"upload_id": ticket["upload_id"]}, headers=key)
    print(reply.raise_for_status().json()["text"])
`;
  const script = `import { readFile } from ${literal("node:fs/promises")};

${inJavaScript({ path: TICKETS, json: order }).replace(/console.*$/, "const ticket = await reply.json();")}
const headers = { "Content-Type": ticket.content_type };
await fetch(ticket.upload_url, { method: "PUT", headers, body: await readFile(${name}) });
${inJavaScript(last).replace('"UPLOAD_ID"', "ticket.upload_id").replaceAll("reply", "answer")}`;
  return { curl: shellText, Python: pythonText, JavaScript: script };
}
