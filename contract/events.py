"""Server-sent events, as every stream of the API frames them. Spec 4 (chat), in OpenAI's form."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

DONE = b"data: [DONE]\n\n"
"""Ends a chat stream that is whole."""

KEEP_ALIVE = b": keep-alive\n\n"
"""A comment: clients pass over it."""


# Made once: `json.dumps` makes an encoder for each text that is not written in its default way.
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def json_bytes(content: Mapping[str, Any]) -> bytes:
    """`content` as JSON, in UTF-8."""
    return _encode(content).encode()


def event(content: Mapping[str, Any]) -> bytes:
    """`content` as one event."""
    return b"data: " + json_bytes(content) + b"\n\n"


def contents(events: bytes) -> Iterator[dict[str, Any]]:
    """The contents of events that `event` framed, for wires that say the same in another form."""
    for framed in events.split(b"\n\n"):
        if framed:
            content: dict[str, Any] = json.loads(framed.removeprefix(b"data: "))
            yield content
