// Streams of the routes of models: events of JSON, with how long one waits; an error among them ends the stream.
import { Fault, parsed } from "../api.js";
import { duration } from "../format.js";
import { send } from "./reply.js";

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
