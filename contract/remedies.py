"""Why each error of `errors.py` happens, and what to do. docs/errors.md is made of both (`make docs`)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Remedy:
    """For people who look an error up.

    Attributes:
        cause: what happened, a clause without a capital.
        remedy: what to do, in whole sentences.
        waits: whether `Retry-After` is computed for each reply, so that the table of errors knows no value.
    """

    cause: str
    remedy: str
    waits: bool = False


BUDGET = "`GET /me` shows what is left. An operator raises it with `python -m state budget set`."
SPLIT = "Split the recording at a pause and send the parts."

REMEDIES: dict[str, Remedy] = {
    "INVALID_REQUEST": Remedy(
        "a field is missing, or has a value that is not allowed",
        "`param` names the field, `message` says what is allowed. The same request fails again: change it.",
    ),
    "INVALID_JSON": Remedy(
        "the body is not JSON in UTF-8, names a key twice, or is nested deeper or has more values than is allowed",
        "Let a JSON library write the body. The bounds are under Limits in the API reference.",
    ),
    "IMAGES_UNSUPPORTED": Remedy(
        "the request has an image, and the model cannot see",
        "Use a model whose `vision` in `GET /models` is true, or leave the image out.",
    ),
    "TEXT_TOO_LONG": Remedy(
        "the text is longer than `qwen` speaks at once",
        "Split the text at the end of a sentence, or use another `provider`.",
    ),
    "CONTEXT_LENGTH_EXCEEDED": Remedy(
        "an input is longer than the model's window, and the request says that it must not be cut",
        "Shorten it or send it in parts, use a model with a longer window (`GET /models`), or let the input be cut.",
    ),
    "UNKNOWN_VOICE": Remedy(
        "no voice has this slug, or none of `qwen` where that was requested",
        "Take a `slug` of `GET /audio/voices`.",
    ),
    "VOICE_PROVIDER_MISMATCH": Remedy(
        "the voice belongs to another engine than the one requested",
        "Leave `provider` and `model` out: the voice chooses its engine.",
    ),
    "CLONING_NOT_SUPPORTED": Remedy(
        "a recording was sent to an engine that imitates no voices",
        "Use `cosyvoice`, or leave `reference_audio_b64` out.",
    ),
    "LANGUAGE_NOT_SUPPORTED": Remedy(
        "the speech engine or transcriber does not know the language",
        "`supported` lists what it knows. Another `provider` or `model` may know more.",
    ),
    "AUDIO_UNREADABLE": Remedy(
        "the recording is in no format that is known, is damaged, or has no sound in it",
        "Play the file first. wav, flac, mp3, ogg, opus, m4a, aac and webm can be read.",
    ),
    "AUDIO_TOO_LONG": Remedy("the recording lasts longer than it may", SPLIT),
    "MISSING_API_KEY": Remedy(
        "there is no `Authorization` header",
        "Send `Authorization: Bearer <key>`. Some proxies and redirects drop the header.",
    ),
    "INVALID_API_KEY": Remedy(
        "the key is unknown, mistyped or revoked",
        "Copy it again, whole and without quotation marks; the server keeps no copy. Else ask for a new key.",
    ),
    "AMBIGUOUS_API_KEY": Remedy(
        "two headers hold a key, and not the same one",
        "Send one of them. Anthropic's clients send both where `ANTHROPIC_API_KEY` and `ANTHROPIC_AUTH_TOKEN` are set.",
    ),
    "ORG_SPEND_LIMIT": Remedy(
        "the organisation's budget has no room for the most that this request can cost, or nothing left for an "
        "engine to be woken",
        BUDGET,
    ),
    "USER_SPEND_LIMIT": Remedy(
        "the user's budget has no room for the most that this request can cost, or nothing left for an engine "
        "to be woken",
        BUDGET,
    ),
    "QUOTA_EXCEEDED": Remedy("the budget has no room for designing a voice", BUDGET),
    "MISSING_SCOPE": Remedy(
        "the key was not given the scope of this route",
        "`GET /me` lists the scopes of the key. Scopes never change: make a key that has this one.",
    ),
    "VOICE_NOT_IN_PLAN": Remedy(
        "the organisation's plan has no choice of voices, nor design",
        "Leave `voice` out, or use a fixed voice. From the plan `starter` on voices can be chosen and designed.",
    ),
    "INVALID_SIGNATURE": Remedy(
        "a signed address was changed, or is older than an hour",
        "Use the address exactly as it came, to the last character, or ask for a new one.",
    ),
    "NOT_FOUND": Remedy(
        "there is no such path, no such draft of a voice, or no such upload: unknown, used, or its bytes never came",
        "Look at the path: `/v1/...`. For an upload, get a new ticket. `GET /audio/voices/designs` lists your drafts.",
    ),
    "MODEL_NOT_FOUND": Remedy(
        "the model is unknown, not set up, or not enabled for your organisation: all look the same",
        "Take an `id` of `GET /models`.",
    ),
    "UNKNOWN_PRESET": Remedy("no pack of questions has this id", "Take an `id` of `GET /decisions/presets`."),
    "METHOD_NOT_ALLOWED": Remedy(
        "the path exists, this method does not", "The reference names the method of each path."
    ),
    "UPLOAD_STALLED": Remedy(
        "a body or an upload stood still, came too slowly, or was not whole before its ticket expired",
        "Send it again in one go; for an upload, get a new ticket. The bounds are under Limits in the API reference.",
    ),
    "IDEMPOTENCY_IN_PROGRESS": Remedy(
        "the first request with this `Idempotency-Key` still runs",
        "Send it again until its answer comes. The work is done once.",
    ),
    "IDEMPOTENCY_FINISHED": Remedy(
        "the first request is done, and its answer was not kept: too long, or a decision",
        "Take a new `Idempotency-Key`, which does the work and bills it again.",
    ),
    "VOICE_LIMIT_REACHED": Remedy(
        "the organisation has as many voices as it may, or the slug is taken",
        "Discard the draft of a voice that you do not need, or choose another slug.",
    ),
    "FOREIGN_ORIGIN": Remedy(
        "a message to an MCP endpoint came under a `Host` that is not this server's, or from another site's web page",
        "Use the address that the operator has configured. An operator sets `PARLANCE_PUBLIC_URL` to a server's name.",
    ),
    "NOT_ACCEPTABLE": Remedy(
        "the client of an MCP endpoint accepts no JSON",
        "Send `Accept: application/json, text/event-stream`, as the official SDKs do.",
    ),
    "TOO_MANY_PENDING": Remedy(
        "the organisation has as many drafts of voices under way as it may, or a hundred that are neither adopted nor "
        "deleted",
        "Poll them until they are ready; adopt or delete those that are.",
    ),
    "ALREADY_UPLOADED": Remedy(
        "the bytes of this ticket are here already",
        "Go on with `POST /audio/transcriptions`.",
    ),
    "REQUEST_TOO_LARGE": Remedy(
        "the body is too long; for decisions, also a text or an image in it; for an upload, also the announced size",
        "Send less at once. Recordings over 4.5 MiB go through `POST /audio/uploads`.",
    ),
    "UNSUPPORTED_MEDIA_TYPE": Remedy(
        "the body is compressed, is a form where JSON is taken, or is a recording of a type that is not taken",
        "Turn compression off in the client, and send the content type that the reference names.",
    ),
    "IDEMPOTENCY_MISMATCH": Remedy(
        "the `Idempotency-Key` came with another body before",
        "Take a new key for each new request; repeat a request with exactly the same body.",
    ),
    "LANGUAGE_UNPROCESSABLE": Remedy(
        "`qwen` does not speak the language",
        "`supported` lists what it speaks. Leave `provider` out, and an engine that speaks it is chosen.",
    ),
    "RATE_LIMIT_EXCEEDED": Remedy(
        "the key, or an address without a valid one, has sent too many requests within a minute, or the key has too "
        "many open streams",
        "Wait as long as `Retry-After` says. `x-ratelimit-remaining` tells beforehand; close unread streams.",
        waits=True,
    ),
    "TOO_MUCH_AT_ONCE": Remedy(
        "the key, the organisation or the address has too many requests under way, or too much in their bodies",
        "Send fewer at once, or smaller ones: the bounds are under Limits in the API reference. "
        "Wait as long as `Retry-After` says.",
        waits=True,
    ),
    "TOO_MANY_UPLOADS": Remedy(
        "the organisation has a hundred tickets that it has not used, or used before anything was uploaded; "
        "or recordings under its tickets would take more of the disk than they leave to others",
        "Upload, and use them; each expires after an hour.",
    ),
    "BUSY": Remedy(
        "every slot of the engine is taken, or too many recordings of the organisation wait or are being heard",
        "Send it again after `Retry-After`, which the official clients do by themselves. "
        "If it stays, the operator raises `max_ongoing_requests`, `max_queued` or the number of replicas.",
    ),
    "PROVIDER_BUSY": Remedy(
        "the provider behind the speech engine or transcriber takes no more requests",
        "Wait some seconds, or use an engine that runs here.",
    ),
    "INTERNAL_ERROR": Remedy(
        "a fault of ours",
        "Send it again once. If it stays, tell the operator the time and the `x-request-id`: the log has both.",
    ),
    "NOT_IMPLEMENTED": Remedy(
        "the route is planned, not available; or no designer of voices is set up here and enabled for you",
        "Do without it; waiting does not help. `available` of `GET /audio/voices/design-options` says it beforehand.",
    ),
    "UPSTREAM_ERROR": Remedy(
        "the engine failed or died while it worked on this request, or the designer of voices cannot be started; "
        "nothing is billed",
        "Send it again: Serve replaces a dead replica. If the same request fails twice, the request is the cause.",
    ),
    "STREAM_INCOMPLETE": Remedy(
        "`qwen` broke off before all of the speech was made; nothing of it was sent or billed",
        "Send it again.",
    ),
    "WARMING_UP": Remedy(
        "the engine was asleep and is starting",
        "Wait as long as `Retry-After` says and send it again; the engine starts meanwhile. "
        'The operator can keep it awake (`min_replicas`) or let requests wait (`when_cold = "wait"`).',
        waits=True,
    ),
    "ENGINE_FAILED": Remedy(
        "the engine cannot be started: weights, memory or a device is missing",
        "Only the operator can help: the log of the replica names the cause. Other engines go on.",
    ),
    "NOT_CONFIGURED": Remedy(
        "the speech engine or transcriber is not set up here, or not enabled for your organisation",
        "Take one that `GET /models` lists.",
    ),
    "SAMPLE_UNAVAILABLE": Remedy(
        "the sample of a voice has not been made yet, and its engine sleeps or is busy; or too many wait for samples",
        "Send your key along: for that the engine is woken. Or try again later.",
    ),
    "RUNTIME_UNAVAILABLE": Remedy(
        "no measured runtime of the decision model can be reached; with `Retry-After` while its engine is starting",
        "Wait as long as `Retry-After` says. Without it, `GET /decisions/models` says which model is available.",
        waits=True,
    ),
    "OVERLOADED": Remedy(
        "the server has as many requests, or as much in their bodies, as it can hold",
        "Send it again after `Retry-After`, which the official clients do by themselves. "
        "If it stays, the operator adds ingress replicas.",
        waits=True,
    ),
    "STATE_UNAVAILABLE": Remedy(
        "the database or the store of files does not answer, or earlier usage is not recorded yet; nothing was done",
        "Send it again after `Retry-After`. The operator looks at the database.",
    ),
    "STORE_FULL": Remedy(
        "the disk where recordings lie has less room than uploads must leave free",
        "Send it again later. The operator makes room, or keeps recordings in an object store.",
    ),
    "UPSTREAM_TIMEOUT": Remedy(
        "the engine was slower than its `deadline_s` allows",
        "Ask for less at once (`max_tokens`, a shorter text), or stream: the limit holds for each event then.",
    ),
    "RECORDING_TIMEOUT": Remedy("`whisper-large-v3` was still computing after two minutes", SPLIT),
}
"""By the name of the row. A test holds it to be complete."""
