"""Writing of replies: server-sent events, and the shape of errors on each wire.

An error before any route has the shape of the wire that owns its path.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from typing_extensions import TypedDict

from contract.errors import ApiError

DONE = b"data: [DONE]\n\n"
"""End of a complete chat stream."""

KEEP_ALIVE = b": keep-alive\n\n"
"""Comment, which clients ignore."""


# Made once: `json.dumps` makes an encoder for each text that is not written in its default way.
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def json_bytes(content: Mapping[str, Any]) -> bytes:
    """Returns `content` as JSON, in UTF-8."""
    return _encode(content).encode()


def event(content: Mapping[str, Any]) -> bytes:
    """Returns `content` as one event."""
    return b"data: " + json_bytes(content) + b"\n\n"


def named_event(name: str, content: Mapping[str, Any]) -> bytes:
    """Returns `content` as an event with a name."""
    return b"event: " + name.encode() + b"\n" + event(content)


QUEUE_STATUS = "queue_status"
"""Name of the events that report a wait."""


class QueueStatus(TypedDict):
    """Status of a stream that waits. The times are null until the duration of calls is known.

    Attributes:
        position: place among the waiting calls of this process; 1 is next.
        of: number of waiting calls.
        eta_ms: median milliseconds until the work begins.
        eta_p90_ms: milliseconds until then in nine cases of ten.
        why: every slot is taken, the model is being loaded, or both.
    """

    position: int
    of: int
    eta_ms: int | None
    eta_p90_ms: int | None
    why: Literal["queue", "load", "both"]


def contents(events: bytes) -> Iterator[dict[str, Any]]:
    """Yields the contents of events that `event` framed, for wires that convert them to another form."""
    for framed in events.split(b"\n\n"):
        if framed.startswith(b"data: {"):
            content: dict[str, Any] = json.loads(framed.removeprefix(b"data: "))
            yield content


class MessagesErrorDetails(TypedDict):
    """Details of an error, in which clients look for its code."""

    error_code: str


class MessagesErrorObject(TypedDict):
    """An error. `code` and `param` are those of other routes; Anthropic's schema has neither."""

    type: str
    message: str
    code: str
    param: str | None
    details: MessagesErrorDetails


class MessagesErrorReply(TypedDict):
    """Body of every error of these routes, in Anthropic's shape."""

    type: Literal["error"]
    error: MessagesErrorObject
    request_id: str


NAMES = (
    (re.compile(r"^response_format(\.json_schema)?\b"), "output_config.format"),
    (re.compile(r"^reasoning_effort\b"), "output_config.effort"),
    (re.compile(r"^(tools\[\d+\])\.function\.parameters\b"), r"\1.input_schema"),
    (re.compile(r"^(tools\[\d+\])\.function\b"), r"\1"),
)
"""Fields of a chat, and their names on Anthropic's wire."""


def _here(field: str) -> str:
    for chat, name in NAMES:
        field = chat.sub(name, field)
    return field


def error_body(error: ApiError, request_id: str) -> dict[str, Any]:
    """Returns the JSON body of `error`, which names fields of a chat where chat has raised it."""
    fault, error = error.fault, error.renamed(_here)
    content: MessagesErrorObject = {
        "type": fault.types[1],
        "message": error.message,
        "code": fault.code,
        "param": error.param,
        "details": {"error_code": fault.code},
    }
    return {"type": "error", "error": content | error.extra, "request_id": request_id}


@dataclass(frozen=True, slots=True)
class ErrorShape:
    """Shape of errors on a wire: `body` returns the JSON body for an error and the id of its request.

    `id_headers` are the headers of every reply in which the clients of the wire look for that id.
    """

    body: Callable[[ApiError, str], dict[str, Any]]
    id_headers: tuple[str, ...] = ("x-request-id",)


OPENAI = ErrorShape(lambda error, _: error.body())
ANTHROPIC = ErrorShape(error_body, ("x-request-id", "request-id"))

ANTHROPIC_PATHS = re.compile(r"(/v1)?/messages(/.*)?", re.DOTALL)
"""Paths with errors in Anthropic's shape, even without a route. All other paths have OpenAI's."""
