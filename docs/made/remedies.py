"""Why each error of `contract/errors.py` happens, and what to do. docs/errors.md is made of both (`make docs`)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Remedy:
    """What people read who look an error up.

    Attributes:
        cause: what happened, a clause without a capital.
        remedy: what to do, in whole sentences.
        waits: whether `Retry-After` is computed for each reply. Where the row has a value, that is the least.
    """

    cause: str
    remedy: str
    waits: bool = False


BUDGET = "`GET /me` shows what is left. An operator raises it with `python -m state budget set`."
SPLIT = (
    "Split the recording at a pause and send the parts: [long recordings](given-a-key.md#long-recordings) has all "
    "limits and says how."
)

REMEDIES: dict[str, Remedy] = {
    "INVALID_REQUEST": Remedy(
        "a field is missing, or its value is not allowed",
        "`param` names the field and `message` says what is allowed. Change the request: unchanged, it fails again.",
    ),
    "INVALID_JSON": Remedy(
        "the body is not JSON in UTF-8, has a key twice, is nested too deeply or has too many values",
        "Use a JSON library to write the body. The limits are under Limits in the API reference.",
    ),
    "IMAGES_UNSUPPORTED": Remedy(
        "the request has an image, and the model does not read images",
        "Use a model whose `vision` in `GET /models` is true, or leave the image out.",
    ),
    "TEXT_TOO_LONG": Remedy(
        "the text is longer than `qwen` accepts in one request",
        "Split the text at the end of a sentence, or use another `provider`.",
    ),
    "CONTEXT_LENGTH_EXCEEDED": Remedy(
        "an input is longer than the model's context window, and the request forbids truncation",
        "Shorten it, send it in parts, use a model with a longer window (`GET /models`), or allow truncation.",
    ),
    "UNKNOWN_VOICE": Remedy(
        "no voice has this slug, or `qwen` was requested and has no such voice",
        "Use a `slug` that `GET /audio/voices` lists.",
    ),
    "VOICE_PROVIDER_MISMATCH": Remedy(
        "the voice belongs to another engine than the one requested",
        "Leave `provider` and `model` out: the voice chooses its engine.",
    ),
    "CLONING_NOT_SUPPORTED": Remedy(
        "a recording was sent to an engine that cannot clone voices",
        "Use `cosyvoice`, or leave `reference_audio_b64` out.",
    ),
    "LANGUAGE_NOT_SUPPORTED": Remedy(
        "the speech engine or transcriber does not know the language",
        "`supported` lists the languages it knows. Another `provider` or `model` may know more.",
    ),
    "AUDIO_UNREADABLE": Remedy(
        "the recording has an unknown format, is damaged or contains no sound",
        "Check that the file plays. The server reads wav, flac, mp3, ogg, opus, m4a, aac and webm.",
    ),
    "BUFFER_EMPTY": Remedy(
        "a live session was told to commit, and its buffer holds no speech, or less than a tenth of a second",
        "Append sound first. With `server_vad` turns end by themselves.",
    ),
    "AUDIO_TOO_LONG": Remedy(
        "the recording is longer than four hours, than 20 minutes with `format_text`, or than 30 seconds as a clip to "
        "be imitated",
        SPLIT,
    ),
    "MISSING_API_KEY": Remedy(
        "there is no `Authorization` header",
        "Send `Authorization: Bearer <key>`. Some proxies and redirects drop the header.",
    ),
    "INVALID_API_KEY": Remedy(
        "the key is unknown, mistyped or revoked",
        "Copy it again in full and without quotation marks. The server stores no copy, so a lost key must be replaced.",
    ),
    "EXPIRED_API_KEY": Remedy(
        "the key was made for a time that is over",
        "Get another one: `python -m state key create --for 8h`. `GET /me` says in time until when a key is valid.",
    ),
    "AMBIGUOUS_API_KEY": Remedy(
        "two headers hold different keys",
        "Send one of them. Anthropic's clients send both if `ANTHROPIC_API_KEY` and `ANTHROPIC_AUTH_TOKEN` are set.",
    ),
    "ORG_SPEND_LIMIT": Remedy(
        "this request can cost more than the organisation's budget has left, or the budget is used up and the "
        "engine would have to be started",
        BUDGET,
    ),
    "USER_SPEND_LIMIT": Remedy(
        "this request can cost more than the user's budget has left, or the budget is used up and the engine "
        "would have to be started",
        BUDGET,
    ),
    "QUOTA_EXCEEDED": Remedy("the design of a voice costs more than the budget has left", BUDGET),
    "MISSING_SCOPE": Remedy(
        "the key does not have the scope that this route requires",
        "`GET /me` lists the scopes of the key. The scopes of a key never change: create a key that has this one.",
    ),
    "VOICE_NOT_IN_PLAN": Remedy(
        "the organisation's plan includes neither voice selection nor voice design",
        "Leave `voice` out, or use a fixed voice. Voice selection and design begin with the plan `starter`.",
    ),
    "INVALID_SIGNATURE": Remedy(
        "a signed address was changed, or is older than an hour",
        "Use the address exactly as you received it, or request a new one.",
    ),
    "NOT_FOUND": Remedy(
        "the path or the voice draft does not exist, or the upload is unknown, used or was never sent",
        "Check the path: `/v1/...`. For an upload, get a new ticket. `GET /audio/voices/designs` lists your drafts.",
    ),
    "MODEL_NOT_FOUND": Remedy(
        "the model is unknown, not set up, or not enabled for your organisation; the reply is the same for all three",
        "Use an `id` that `GET /models` lists.",
    ),
    "UNKNOWN_PRESET": Remedy("no preset has this id", "Use an `id` that `GET /decisions/presets` lists."),
    "METHOD_NOT_ALLOWED": Remedy(
        "the path does not support this method", "The API reference names the methods of each path."
    ),
    "UPLOAD_STALLED": Remedy(
        "a body or an upload stalled, arrived too slowly, or was incomplete when its ticket expired",
        "Send it again without pauses; for an upload, get a new ticket. The API reference lists the limits.",
    ),
    "IDEMPOTENCY_IN_PROGRESS": Remedy(
        "the first request with this `Idempotency-Key` is still running",
        "Repeat the request until you receive the answer. The work is done only once.",
    ),
    "IDEMPOTENCY_FINISHED": Remedy(
        "the first request has finished, and its answer was not stored: it was too long, or it is a decision",
        "Use a new `Idempotency-Key`; the work is then done and billed again.",
    ),
    "VOICE_LIMIT_REACHED": Remedy(
        "the organisation has reached its limit of voices, or the slug is in use",
        "Discard a draft that you do not need, or choose another slug.",
    ),
    "FOREIGN_ORIGIN": Remedy(
        "a message to an MCP endpoint has a `Host` that is not this server's, or comes from a web page of another site",
        "Use the address that the operator has configured: operators set `PARLANCE_PUBLIC_URL` to it.",
    ),
    "NOT_ACCEPTABLE": Remedy(
        "the client of an MCP endpoint does not accept JSON",
        "Send `Accept: application/json, text/event-stream`, as the official SDKs do.",
    ),
    "TOO_MANY_PENDING": Remedy(
        "the organisation has too many pending voice drafts, or a hundred drafts that are neither adopted nor deleted",
        "Poll the pending drafts until they are ready; adopt or delete the ready ones.",
    ),
    "ALREADY_UPLOADED": Remedy(
        "a recording has already been uploaded under this ticket",
        "Continue with `POST /audio/transcriptions`.",
    ),
    "REQUEST_TOO_LARGE": Remedy(
        "the body is too long; in decisions a text or an image may be, and in an upload the announced size",
        "Send less in one request. Upload recordings over 4.5 MiB with `POST /audio/uploads`.",
    ),
    "UNSUPPORTED_MEDIA_TYPE": Remedy(
        "the body is compressed, is a form where JSON is expected, or is a recording of an unsupported type",
        "Turn compression off in the client, and send the content type that the API reference names.",
    ),
    "IDEMPOTENCY_MISMATCH": Remedy(
        "this `Idempotency-Key` was already used with another body",
        "Use a new key for each new request; repeat a request with exactly the same body.",
    ),
    "LANGUAGE_UNPROCESSABLE": Remedy(
        "`qwen` does not speak the language",
        "`supported` lists those it speaks. Without `provider`, the server chooses an engine that speaks the language.",
    ),
    "RATE_LIMIT_EXCEEDED": Remedy(
        "the key, or an address without a valid key, has sent too many requests within a minute, or the key has too "
        "many open streams",
        "Wait for the seconds in `Retry-After`. `x-ratelimit-remaining` counts down beforehand; close unread streams.",
        waits=True,
    ),
    "TOO_MUCH_AT_ONCE": Remedy(
        "the key, the organisation or the address has too many concurrent requests, or too many bytes in them",
        "Send fewer or smaller requests at once: the limits are under Limits in the API reference. "
        "Wait for the seconds in `Retry-After`.",
        waits=True,
    ),
    "TOO_MANY_UPLOADS": Remedy(
        "the organisation has a hundred tickets that are unused or were used before anything was uploaded, "
        "or its tickets would take more of the disk for recordings than they leave free",
        "Upload to these tickets and use them; each expires after an hour.",
    ),
    "BUFFER_FULL": Remedy(
        "a live session got more sound than it can hold: more than 30 s ahead of real time, or two minutes that wait "
        "for their text; that sound was not taken",
        "Send the same sound again after `retry_after_ms`; commit or clear the buffer where turns are yours to end.",
    ),
    "BUSY": Remedy(
        "every slot of the engine is in use, or too many recordings of the organisation are queued or being "
        "transcribed",
        "Send it again after `Retry-After`; the official clients do so by themselves. That is 1 second, or for a full "
        "queue the time until its last request begins, 60 seconds at most. If this persists, the operator can raise "
        "`max_ongoing_requests`, `max_queued` or the number of replicas.",
        waits=True,
    ),
    "PROVIDER_BUSY": Remedy(
        "the external provider of the speech engine or transcriber accepts no more requests",
        "Wait a few seconds, or use an engine that runs on this server.",
    ),
    "INTERNAL_ERROR": Remedy(
        "the server has a defect",
        "Send it again once. If this persists, give the operator the time and the `x-request-id`: the log has both.",
    ),
    "NOT_IMPLEMENTED": Remedy(
        "the route is planned but not available, or no voice designer is set up here and enabled for your organisation",
        "Waiting does not help. For voice design, check `available` in `GET /audio/voices/design-options` beforehand.",
    ),
    "UPSTREAM_ERROR": Remedy(
        "the engine failed or died while it processed this request, or the voice designer cannot be started; "
        "nothing is billed",
        "Send it again: Serve replaces a dead replica. If it keeps failing, give your operator the `x-request-id`.",
    ),
    "STREAM_INCOMPLETE": Remedy(
        "`qwen` failed before the speech was complete; nothing was sent or billed",
        "Send it again.",
    ),
    "WARMING_UP": Remedy(
        "the engine had no replica running and is starting now",
        "Send it again after the seconds in `Retry-After`; the engine starts meanwhile. "
        'The operator can keep it running (`min_replicas`) or let requests wait (`when_cold = "wait"`).',
        waits=True,
    ),
    "ENGINE_FAILED": Remedy(
        "the engine cannot be started: weights, memory or a device is missing",
        "Only the operator can help: the log of the replica names the cause. Other engines are not affected.",
    ),
    "NOT_CONFIGURED": Remedy(
        "the speech engine or transcriber is not set up here, or not enabled for your organisation",
        "Use an engine or a model that `GET /models` lists.",
    ),
    "SAMPLE_UNAVAILABLE": Remedy(
        "the sample has not been generated yet and its engine is asleep or busy, or too many clients wait for samples",
        "Send your API key with the request: then the engine is started. Or retry later.",
    ),
    "RUNTIME_UNAVAILABLE": Remedy(
        "no measured runtime of the decision model is reachable; `Retry-After` is sent while its engine is starting",
        "Wait for the seconds in `Retry-After`. Without it, see in `GET /decisions/models` which model is available.",
        waits=True,
    ),
    "OVERLOADED": Remedy(
        "the server has reached its limit of concurrent requests or of memory for their bodies",
        "Send it again after `Retry-After`; the official clients do so by themselves. "
        "If this persists, the operator can add ingress replicas.",
        waits=True,
    ),
    "STATE_UNAVAILABLE": Remedy(
        "the database or the file store does not respond, or earlier usage is not recorded yet; nothing was done",
        "Send it again after `Retry-After`. The operator should check the database and the file store.",
    ),
    "STORE_FULL": Remedy(
        "the disk that holds recordings has less free space than uploads must leave",
        "Send it again later. The operator can free space, or keep recordings in an object store.",
    ),
    "UPSTREAM_TIMEOUT": Remedy(
        "the engine took longer than its `deadline_s` allows",
        "Ask for less at once (`max_tokens`, a shorter text), or stream: then the limit applies to each event.",
    ),
    "RECORDING_TIMEOUT": Remedy(
        "`whisper-large-v3` had not finished 240 seconds after the request, though it had spent at least 120 of them "
        "on this recording",
        SPLIT,
    ),
}
"""Remedies by the name of the row. A test holds that each row has one."""
