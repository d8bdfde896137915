// Writes a request as a call of curl, in Python and in JavaScript. The key is always a variable of the environment.
import { address } from "../api.js";

// Marks that cannot be seen, or turn the direction of writing, are written out: a copied call is what one reads.
const UNSEEN = /[\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
const escaped = (json) => json.replace(UNSEEN, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);
const literal = (value, indent) => escaped(JSON.stringify(value, null, indent));
const shell = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** The name of a file, where it can be shown and typed; otherwise a plain one with its ending. */
export function fileName(file) {
  const plain = file.name.length < 100 && !/[\u0000-\u001f"\\$`]/.test(file.name) && file.name.search(UNSEEN) < 0;
  return plain ? file.name : `recording${/\.[a-z0-9]{1,5}$/i.exec(file.name)?.[0] ?? ""}`;
}

/** Text that stands in Python as it is. */
export class Expression {
  constructor(text) {
    this.text = text;
  }
}

const NAMES = new Map([[true, "True"], [false, "False"], [null, "None"]]);

/** `value` as a literal of Python. */
export function python(value, indent = "    ") {
  if (value instanceof Expression) return value.text;
  if (NAMES.has(value)) return NAMES.get(value);
  if (typeof value !== "object") return literal(value);
  const isList = Array.isArray(value);
  const inner = `${indent}    `;
  const items = Object.entries(value).map(([key, item]) => `${isList ? "" : `${literal(key)}: `}${python(item, inner)}`);
  const [open, close] = isList ? "[]" : "{}";
  const short = open + items.join(", ") + close;
  return short.length + indent.length < 100 ? short : `${open}\n${items.map((item) => `${inner}${item},\n`).join("")}${indent}${close}`;
}

const named = (values, indent) => Object.entries(values).map(([name, value]) => `    ${name}=${python(value, indent)},\n`).join("");

/** `request` for a shell. */
export function curl(request) {
  const parts = [`curl${request.streams ? " -N" : ""}${request.saves ? ` -o ${shell(request.saves)}` : ""} ${shell(address(request.path).href)}`];
  if (methodOf(request) === "DELETE") parts.push("-X DELETE");
  if (!request.keyless) parts.push('-H "Authorization: Bearer $PARLANCE_KEY"');
  for (const [name, value] of Object.entries(headersOf(request))) parts.push(`-H ${shell(`${name}: ${value}`)}`);
  if (request.json) parts.push(`-d ${shell(literal(request.json, 2))}`);
  for (const [name, value] of request.pairs ?? []) parts.push(`--form-string ${shell(`${name}=${escaped(value)}`)}`);
  if (request.file) parts.push(`-F ${shell(`file=@"${fileName(request.file)}"`)}`);
  return parts.join(" \\\n  ");
}

export const methodOf = ({ method, json, pairs }) => method ?? (json || pairs ? "POST" : "GET");

const headersOf = ({ json, headers }) => ({ ...(json && { "Content-Type": "application/json" }), ...headers });

const PACKAGES = {
  openai: { lines: ["from openai import OpenAI"], client: () => `OpenAI(base_url=${literal(address("v1").href)}, api_key=os.environ["PARLANCE_KEY"])` },
  cohere: { lines: ["import cohere"], client: () => `cohere.ClientV2(base_url=${literal(address("").href.replace(/\/$/, ""))}, api_key=os.environ["PARLANCE_KEY"])` },
};

/** `request` in Python: with the official package where `request.sdk` says how, else with httpx. */
export function inPython(request) {
  if (!request.sdk) return withHttpx(request);
  const { from = "openai", call, takes, lead = "reply = ", tail, args = request.json } = request.sdk;
  const { lines, client } = PACKAGES[from];
  const known = Object.fromEntries(Object.entries(args).filter(([name]) => takes.includes(name)));
  const others = Object.fromEntries(Object.entries(args).filter(([name]) => !takes.includes(name)));
  const extra = Object.keys(others).length ? { extra_body: others } : {};
  return `import os\n\n${lines.join("\n")}\n\nclient = ${client()}\n${lead}client.${call}(\n${named({ ...known, ...extra })})${tail}\n`;
}

function withHttpx(request) {
  const key = new Expression("f\"Bearer {os.environ['PARLANCE_KEY']}\"");
  const headers = { ...(!request.keyless && { Authorization: key }), ...request.headers };
  const body = present({ headers, json: request.json, data: groups(request.pairs), files: request.file && { file: opened(request.file) } });
  const verb = methodOf(request).toLowerCase();
  const last = request.saves ? `open(${literal(request.saves)}, "wb").write(reply.content)` : `print(reply.${request.streams ? "text" : "json()"})`;
  const before = request.keyless ? "import httpx" : "import os\n\nimport httpx";
  return `${before}\n\nreply = httpx.${verb}(\n    ${literal(address(request.path).href)},\n${named(body)}    timeout=300,\n)\nreply.raise_for_status()\n${last}\n`;
}

const present = (values) => Object.fromEntries(Object.entries(values).filter(([, value]) => value && Object.keys(value).length));

export const opened = (file) => new Expression(`open(${literal(fileName(file))}, "rb")`);

function groups(pairs) {
  const values = {};
  for (const [name, value] of pairs ?? []) values[name] = name in values ? [values[name], value].flat() : value;
  return values;
}

/** `request` in JavaScript, for Node and, with another way to the key, for browsers. */
export function inJavaScript(request) {
  const lines = [];
  if (request.file) lines.push('import { openAsBlob } from "node:fs";');
  if (request.saves) lines.push('import { writeFile } from "node:fs/promises";');
  if (lines.length) lines.push("");
  if (request.pairs) lines.push(...formLines(request));
  const key = request.keyless ? [] : ["Authorization: `Bearer ${process.env.PARLANCE_KEY}`"];
  const headers = [...key, ...Object.entries(headersOf(request)).map(([name, value]) => `${literal(name)}: ${literal(value)}`)];
  lines.push(`const reply = await fetch(${literal(address(request.path).href)}, {`);
  lines.push(`  method: "${methodOf(request)}",`, `  headers: { ${headers.join(", ")} },`);
  if (request.json) lines.push(`  body: JSON.stringify(${literal(request.json, 2).replaceAll("\n", "\n  ")}),`);
  if (request.pairs) lines.push("  body: form,");
  lines.push("});", "if (!reply.ok) throw new Error(await reply.text());", ending(request), "");
  return lines.join("\n");
}

function formLines({ file, pairs }) {
  const lines = ["const form = new FormData();"];
  if (file) lines.push(`form.append("file", await openAsBlob(${literal(fileName(file))}), ${literal(fileName(file))});`);
  for (const [name, value] of pairs) lines.push(`form.append(${literal(name)}, ${literal(value)});`);
  return lines;
}

function ending({ saves, streams }) {
  if (saves) return `await writeFile(${literal(saves)}, Buffer.from(await reply.arrayBuffer()));`;
  if (streams) return "for await (const piece of reply.body.pipeThrough(new TextDecoderStream())) process.stdout.write(piece);";
  return "console.log(await reply.json());";
}
