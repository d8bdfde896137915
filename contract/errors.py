"""Every error of the API, in one table. `docs/errors.md` shows it with causes and remedies.

    ApiError                      exception, raised in the ingress or below it
      `- fault: Fault             row of the table, with status, type, code and headers

Raise an error by calling a row: `raise UNKNOWN_VOICE("voice `x` does not exist", param="voice")`. No other file chooses
a status or a code. Rows with a `text` are service faults: their text is fixed and reveals nothing internal.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NotRequired

from typing_extensions import TypedDict

QUOTED = re.compile(r"`([^`]{1,200})`")
"""Name of a field inside a sentence."""

INVALID_TYPE = "invalid_request_error"
TYPES = {
    401: ("authentication_error", "authentication_error"),
    402: ("insufficient_quota", "billing_error"),
    403: ("permission_error", "permission_error"),
    404: (INVALID_TYPE, "not_found_error"),
    408: (INVALID_TYPE, "timeout_error"),
    413: (INVALID_TYPE, "request_too_large"),
    429: ("rate_limit_error", "rate_limit_error"),
    500: ("server_error", "api_error"),
    501: ("not_implemented", "api_error"),
    502: ("upstream_error", "api_error"),
    503: ("server_error", "overloaded_error"),
    504: ("upstream_error", "timeout_error"),
}
"""Types of errors by status, on OpenAI's wires and on Anthropic's; INVALID_TYPE on both for every other status."""


def without_text(error: BaseException) -> str:
    """Returns types and frames of an exception and its causes, for a log, without texts: they may quote a client."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    cause = error.__cause__ or error.__context__
    return f"{type(error).__name__}\n{frames}" + (f"caused by {without_text(cause)}" if cause else "")


FAULTS: dict[str, Fault] = {}
"""All rows by name, filled by `_row`."""


class ErrorObject(TypedDict):
    """Details of an error. `type` and `code` are for programs, `message` for people; `supported` lists languages."""

    message: str
    type: str
    param: str | None
    code: str
    supported: NotRequired[list[str]]


class ErrorReply(TypedDict):
    """Body of every error."""

    error: ErrorObject


class ApiError(Exception):
    """One error reply. All arguments are positional, so that they are in `args`, which pickling between replicas keeps.

    Attributes:
        fault: row of the table.
        message: one sentence with the value that was sent, and the values that are allowed.
        param: request field at fault, in the sense of OpenAI's schema, or None.
        retry_after_s: whole seconds for `Retry-After`, or None for no header.
        extra: further members of the `error` object (`supported` for languages).
    """

    def __init__(
        self,
        fault_name: str,
        message: str,
        param: str | None = None,
        retry_after_s: int | None = None,
        extra: Mapping[str, Any] | None = None,
        /,
    ) -> None:
        self.fault = FAULTS[fault_name]
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s
        self.extra = dict(extra or {})

    def __str__(self) -> str:
        return f"{self.fault.status} {self.fault.code}: {self.message}"

    def renamed(self, rename: Callable[[str], str]) -> ApiError:
        """Returns the same error with the names of another wire, for `param` and for what the sentence quotes."""
        message = QUOTED.sub(lambda quoted: f"`{rename(quoted[1])}`", self.message)
        param = rename(self.param) if self.param else self.param
        return ApiError(self.fault.name, message, param, self.retry_after_s, self.extra)

    def body(self) -> dict[str, Any]:
        """Returns the JSON body: `{"error": {message, type, param, code, ...}}`."""
        error = {"message": self.message, "type": self.fault.type, "param": self.param, "code": self.fault.code}
        return {"error": error | self.extra}

    def headers(self) -> dict[str, str]:
        """Returns the headers that only this error has."""
        headers: dict[str, str] = {}
        if self.retry_after_s is not None:
            headers["Retry-After"] = str(self.retry_after_s)
        if self.fault.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        if self.fault.should_retry is not None:
            headers["x-should-retry"] = str(self.fault.should_retry).lower()
        return headers


@dataclass(frozen=True, slots=True)
class Fault:
    """A row of the table. A call of it returns the error.

    Attributes:
        status: HTTP status.
        code: `error.code` on the wire.
        text: fixed message of a service fault; None if each call writes its own.
        retry_after_s: default `Retry-After`, or None.
        should_retry: value of `x-should-retry`, which SDKs obey; None leaves it to them.
    """

    name: str
    status: int
    code: str
    text: str | None = None
    retry_after_s: int | None = None
    should_retry: bool | None = None

    @property
    def types(self) -> tuple[str, str]:
        """The `type` on OpenAI's wires, and that on Anthropic's."""
        return TYPES.get(self.status, (INVALID_TYPE, INVALID_TYPE))

    @property
    def type(self) -> str:
        return self.types[0]

    def __call__(
        self,
        message: str | None = None,
        *,
        param: str | None = None,
        retry_after_s: int | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> ApiError:
        """Returns the error to raise; arguments as in `ApiError`."""
        text = self.text or message
        if text is None:
            raise TypeError(f"{self.name} needs a message")
        wait = self.retry_after_s if retry_after_s is None else retry_after_s
        return ApiError(self.name, text, param, wait, extra)


def _row(name: str, status: int, code: str | None = None, **columns: Any) -> Fault:
    fault = FAULTS[name] = Fault(name, status, code or name.lower(), **columns)
    return fault


INVALID_REQUEST = _row("INVALID_REQUEST", 400, "invalid_request_error")
INVALID_JSON = _row("INVALID_JSON", 400)
IMAGES_UNSUPPORTED = _row("IMAGES_UNSUPPORTED", 400)
TEXT_TOO_LONG = _row("TEXT_TOO_LONG", 400)
CONTEXT_LENGTH_EXCEEDED = _row("CONTEXT_LENGTH_EXCEEDED", 400)
UNKNOWN_VOICE = _row("UNKNOWN_VOICE", 400)
VOICE_PROVIDER_MISMATCH = _row("VOICE_PROVIDER_MISMATCH", 400)
CLONING_NOT_SUPPORTED = _row("CLONING_NOT_SUPPORTED", 400)
LANGUAGE_NOT_SUPPORTED = _row("LANGUAGE_NOT_SUPPORTED", 400)
AUDIO_UNREADABLE = _row("AUDIO_UNREADABLE", 400)
AUDIO_TOO_LONG = _row("AUDIO_TOO_LONG", 400)
BUFFER_EMPTY = _row("BUFFER_EMPTY", 400, "input_audio_buffer_commit_empty")

MISSING_API_KEY = _row("MISSING_API_KEY", 401)
INVALID_API_KEY = _row("INVALID_API_KEY", 401, text="the API key is unknown or revoked; check it, or create another")
EXPIRED_API_KEY = _row("EXPIRED_API_KEY", 401)
AMBIGUOUS_API_KEY = _row(
    "AMBIGUOUS_API_KEY",
    401,
    "invalid_api_key",
    text="`Authorization` and `x-api-key` hold different keys; send only one of the two headers",
)

ORG_SPEND_LIMIT = _row("ORG_SPEND_LIMIT", 402)
USER_SPEND_LIMIT = _row("USER_SPEND_LIMIT", 402)
QUOTA_EXCEEDED = _row("QUOTA_EXCEEDED", 402)

MISSING_SCOPE = _row("MISSING_SCOPE", 403)
VOICE_NOT_IN_PLAN = _row("VOICE_NOT_IN_PLAN", 403)
INVALID_SIGNATURE = _row("INVALID_SIGNATURE", 403)
FOREIGN_ORIGIN = _row("FOREIGN_ORIGIN", 403)

NOT_FOUND = _row("NOT_FOUND", 404)
MODEL_NOT_FOUND = _row("MODEL_NOT_FOUND", 404)
UNKNOWN_PRESET = _row("UNKNOWN_PRESET", 404)
METHOD_NOT_ALLOWED = _row("METHOD_NOT_ALLOWED", 405)
NOT_ACCEPTABLE = _row("NOT_ACCEPTABLE", 406)

UPLOAD_STALLED = _row("UPLOAD_STALLED", 408, "request_timeout")

IDEMPOTENCY_IN_PROGRESS = _row("IDEMPOTENCY_IN_PROGRESS", 409, retry_after_s=1, should_retry=True)
IDEMPOTENCY_FINISHED = _row("IDEMPOTENCY_FINISHED", 409, should_retry=False)
VOICE_LIMIT_REACHED = _row("VOICE_LIMIT_REACHED", 409, should_retry=False)
TOO_MANY_PENDING = _row("TOO_MANY_PENDING", 409, should_retry=False)
ALREADY_UPLOADED = _row("ALREADY_UPLOADED", 409, should_retry=False)
REQUEST_TOO_LARGE = _row("REQUEST_TOO_LARGE", 413)
UNSUPPORTED_MEDIA_TYPE = _row("UNSUPPORTED_MEDIA_TYPE", 415)
IDEMPOTENCY_MISMATCH = _row("IDEMPOTENCY_MISMATCH", 422)
LANGUAGE_UNPROCESSABLE = _row("LANGUAGE_UNPROCESSABLE", 422, "language_not_supported")

RATE_LIMIT_EXCEEDED = _row("RATE_LIMIT_EXCEEDED", 429)
TOO_MUCH_AT_ONCE = _row("TOO_MUCH_AT_ONCE", 429, "rate_limit_exceeded")
TOO_MANY_UPLOADS = _row("TOO_MANY_UPLOADS", 429, "rate_limit_exceeded", retry_after_s=60)
BUFFER_FULL = _row("BUFFER_FULL", 429, "input_audio_buffer_full")
BUSY = _row("BUSY", 429, retry_after_s=1)
PROVIDER_BUSY = _row(
    "PROVIDER_BUSY", 429, "busy", text="the engine's provider accepts no more requests now; try again in a few seconds"
)

INTERNAL_ERROR = _row(
    "INTERNAL_ERROR", 500, text="internal server error; include the `x-request-id` of this reply when you report it"
)
NOT_IMPLEMENTED = _row("NOT_IMPLEMENTED", 501, should_retry=False)
UPSTREAM_ERROR = _row("UPSTREAM_ERROR", 502, text="the engine failed while it processed this request; send it again")
STREAM_INCOMPLETE = _row(
    "STREAM_INCOMPLETE", 502, text="the engine failed before the audio was complete; none of it was sent, so try again"
)
WARMING_UP = _row("WARMING_UP", 503, text="the engine is warming up; send the request again in about a minute")
ENGINE_FAILED = _row(
    "ENGINE_FAILED", 503, text="the engine cannot be started; only the operator of this server can repair it"
)
NOT_CONFIGURED = _row(
    "NOT_CONFIGURED", 503, text="this engine is not set up here; `GET /models` shows which are", should_retry=False
)
SAMPLE_UNAVAILABLE = _row(
    "SAMPLE_UNAVAILABLE",
    503,
    text="this sample is not generated yet, and its engine is asleep or busy; request it with an API key, or later",
    retry_after_s=60,
)
RUNTIME_UNAVAILABLE = _row(
    "RUNTIME_UNAVAILABLE", 503, text="this model has no measured runtime now; `GET /decisions/models` shows which have"
)
OVERLOADED = _row("OVERLOADED", 503, text="the server is at capacity; send the request again shortly")
STATE_UNAVAILABLE = _row(
    "STATE_UNAVAILABLE",
    503,
    text="the server's database or file store does not respond; send the request again shortly",
    retry_after_s=5,
)
STORE_FULL = _row(
    "STORE_FULL", 503, "state_unavailable", text="the disk for recordings is full; try again later", retry_after_s=60
)
RECORDING_TIMEOUT = _row(
    "RECORDING_TIMEOUT", 504, "upstream_timeout", text="this recording took too long; split it and send the parts"
)
UPSTREAM_TIMEOUT = _row(
    "UPSTREAM_TIMEOUT", 504, text="the engine did not answer in time; send the request again or ask for less"
)
