// Events of a stream as the routes of models send them: JSON, of which an error ends the stream.
import { Fault, parsed } from "../api.js";

/** The events of `reply` as `{event, data}`. Throws Fault for an error in the stream and for one that breaks off. */
export async function* eventsOf(reply) {
  const requestId = reply.headers.get("x-request-id");
  try {
    for await (const { event, data } of parsed(reply.body)) {
      if (data === "[DONE]") return;
      const content = JSON.parse(data);
      if (content.error) throw new Fault(content.error.message, { ...content.error, requestId });
      yield { event, data: content };
    }
  } catch (error) {
    if (error instanceof Fault || error.name === "AbortError") throw error;
    throw new Fault("The connection to the server was lost.", { code: "disconnected", requestId });
  }
}
