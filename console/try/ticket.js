// The three calls of a recording under a ticket, to copy: the ticket, the upload, the transcription.
import { address } from "../api.js";
import { curl, fileName, inJavaScript, literal, python, shell } from "./code.js";

const TICKETS = "v1/audio/uploads";

/** Texts by language. `order` is the body of the first call, `request` is the last one. */
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
