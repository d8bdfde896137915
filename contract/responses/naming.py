"""Errors of a chat in the names of this wire: `messages` is `input` here, `response_format` is `text.format`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from contract.errors import ApiError

NAMES = (
    (re.compile(r"^messages\b"), "input"),
    (re.compile(r"^response_format(\.json_schema)?\b"), "text.format"),
    (re.compile(r"^tool_choice\.(function|custom|allowed_tools)\b"), "tool_choice"),
    (re.compile(r"^max_(completion_)?tokens\b"), "max_output_tokens"),
    (re.compile(r"^reasoning_effort\b"), "reasoning.effort"),
    (re.compile(r"^logprobs\b"), "include"),
)
"""Fields of a chat, and the same here."""
TOOL = re.compile(r"^tools\[(\d+)\](\.(function|custom)\b)?")
"""A tool of a chat, which has no namespaces."""
QUOTED = re.compile(r"`([^`]{1,200})`")
"""A field inside a sentence."""


@contextmanager
def named_here(tools: Sequence[str]) -> Iterator[None]:
    """Raises an ApiError from inside again, in the names of this wire; `tools` are the places of the chat's tools."""
    try:
        yield
    except ApiError as error:
        raise ApiError(
            error.fault.name,
            QUOTED.sub(lambda quoted: f"`{here(quoted[1], tools)}`", error.message),
            here(error.param, tools) if error.param else error.param,
            error.retry_after_s,
            error.extra,
        ) from error


def here(field: str, tools: Sequence[str]) -> str:
    """What the `field` of a chat is called on this wire."""
    for chat, name in NAMES:
        field, found = chat.subn(name, field)
        if found:
            return field
    return TOOL.sub(lambda tool: tools[int(tool[1])] if int(tool[1]) < len(tools) else tool[0], field)
