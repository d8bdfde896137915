"""Errors of a chat in the names of this wire: `messages` is `input` here, `response_format` is `text.format`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from contract.errors import ApiError

NAMES = (
    (re.compile(r"^messages\b"), "input"),
    (re.compile(r"^response_format(\.json_schema)?\b"), "text.format"),
    (re.compile(r"^(tools\[\d+\])\.(function|custom)\b"), r"\1"),
    (re.compile(r"^tool_choice\.(function|custom|allowed_tools)\b"), "tool_choice"),
    (re.compile(r"^max_(completion_)?tokens\b"), "max_output_tokens"),
    (re.compile(r"^reasoning_effort\b"), "reasoning.effort"),
    (re.compile(r"^logprobs\b"), "include"),
)
"""Fields of a chat, and the same here."""
QUOTED = re.compile(r"`([^`]{1,200})`")
"""A field inside a sentence."""


@contextmanager
def named_here() -> Iterator[None]:
    """Raises an ApiError from inside again, in the names of this wire."""
    try:
        yield
    except ApiError as error:
        raise ApiError(
            error.fault.name,
            QUOTED.sub(lambda quoted: f"`{_here(quoted[1])}`", error.message),
            _here(error.param) if error.param else error.param,
            error.retry_after_s,
            error.extra,
        ) from error


def _here(field: str) -> str:
    for chat, here in NAMES:
        field, found = chat.subn(here, field)
        if found:
            break
    return field
