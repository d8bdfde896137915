// The three calls of a recording under a ticket, to copy.
import { address } from "../api.js";
import { curl, fileName, inJavaScript, python } from "./code.js";
import { typeOf } from "./upload.js";

/** Texts by language: the ticket, the upload, the transcription. */
export function ticketTexts(file, json) {
  const order = { mime: typeOf(file), size: file.size, model: json.model };
  return { curl: inShell(file, order, json), Python: inPython(file, order, json), JavaScript: inScript(file, order, json) };
}

function inShell(file, order, json) {
  const ticket = curl({ path: "v1/audio/uploads", json: order });
  const last = curl({ path: "v1/audio/transcriptions", json: { ...json, upload_id: "UPLOAD_ID" } }).replace('"UPLOAD_ID"', `"'"$(jq -r .upload_id <<<"$ticket")"'"`);
  const name = `'${fileName(file).replaceAll("'", "'\\''")}'`;
  return `ticket=$(${ticket})\ncurl -T ${name} -H 'Content-Type: ${order.mime}' "$(jq -r .upload_url <<<"$ticket")"\n${last}`;
}

function inPython(file, order, json) {
  return `import os

import httpx

key = {"Authorization": f"Bearer {os.environ['PARLANCE_KEY']}"}
recording = open(${JSON.stringify(fileName(file))}, "rb").read()
with httpx.Client(base_url=${JSON.stringify(address("v1").href)}, timeout=900) as client:
    order = ${python(order)}
    ticket = client.post("/audio/uploads", json=order, headers=key).raise_for_status().json()
    client.put(ticket["upload_url"], content=recording, headers={"content-type": ticket["content_type"]}).raise_for_status()
    body = ${python(json)}
    reply = client.post("/audio/transcriptions", json=body | {"upload_id": ticket["upload_id"]}, headers=key)
    print(reply.raise_for_status().json()["text"])
`;
}

function inScript(file, order, json) {
  const first = inJavaScript({ path: "v1/audio/uploads", json: order }).replace("console.log(await reply.json());", "const ticket = await reply.json();");
  const rest = inJavaScript({ path: "v1/audio/transcriptions", json: { ...json, upload_id: "UPLOAD_ID" } }).replace('"UPLOAD_ID"', "ticket.upload_id").replaceAll("reply", "answer");
  const name = JSON.stringify(fileName(file));
  return `import { readFile } from "node:fs/promises";\n\n${first}await fetch(ticket.upload_url, { method: "PUT", headers: { "Content-Type": ticket.content_type }, body: await readFile(${name}) });\n${rest}`;
}
