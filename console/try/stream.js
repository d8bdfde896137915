// Events of a stream as the routes of models send them: JSON, an error among them ends the stream.
import { eventsIn, Fault } from "../api.js";

/** The events of `reply` as `{event, data}`, `data` parsed. Throws Fault for an error that came in the stream. */
export async function* eventsOf(reply) {
  for await (const { event, data } of eventsIn(reply)) {
    if (data === "[DONE]") return;
    const parsed = JSON.parse(data);
    if (parsed.error) {
      const { message, type, code, retry_after_s: retryAfterS = null } = parsed.error;
      throw new Fault(message, { type, code, retryAfterS, requestId: reply.headers.get("x-request-id") });
    }
    yield { event, data: parsed };
  }
}
