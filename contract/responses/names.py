"""Namespaces: named groups of tools. Models know single names, so a tool of a group gets one of its own for them.

{"type": "namespace", "name": "crm", "tools": [{"type": "function", "name": "find"}]}
the model is told of      crm__find
the call that comes back  {"type": "function_call", "namespace": "crm", "name": "find"}
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from contract.chat.tools import NAME_PATTERN
from contract.errors import ApiError

MAX_NAME_CHARS = 64
"""Characters of a tool's name in the prompt; `NAME_PATTERN` allows no more."""
DIGEST_CHARS = 8
Path = tuple[str | None, str]
"""The namespace of a tool, where it has one, and its name in there."""


class ToolNames:
    """What the model calls the tools of one request, and back."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._path_of: dict[str, Path] = {}
        # Tools without a namespace keep their name, so theirs are given first.
        for path in sorted(set(paths), key=lambda path: (path[0] or "", path[1])):
            name = model_name(*path)
            self._path_of[model_name(*path, is_taken=True) if name in self._path_of else name] = path
        self._name_of = {path: name for name, path in self._path_of.items()}

    def of(self, namespace: str | None, name: str) -> str:
        """What the model calls a tool; also one that the request does not offer, but whose calls it repeats."""
        path = (namespace or None, name)
        return self._name_of.get(path) or model_name(*path)

    def path(self, name: str) -> Path:
        """The tool that the model calls `name`."""
        return self._path_of.get(name, (None, name))

    def homes(self, name: str) -> list[str | None]:
        """The namespaces that have a tool `name`; `[None]` where one without a namespace, or none at all, has it."""
        homes = [namespace for namespace, tool_name in self._name_of if tool_name == name]
        return [None] if None in homes else homes or [None]


def model_name(namespace: str | None, name: str, *, is_taken: bool = False) -> str:
    """One name for both; a digest ends it where they are too long together, hold other characters, or it `is_taken`."""
    if namespace is None:
        return name
    joined = f"{namespace}__{name}"
    if re.fullmatch(NAME_PATTERN, joined) and not is_taken:
        return joined
    digest = hashlib.sha256(f"{namespace}\n{name}".encode()).hexdigest()[:DIGEST_CHARS]
    readable = re.sub(r"[^a-zA-Z0-9_-]", "_", joined)[: MAX_NAME_CHARS - DIGEST_CHARS - 1]
    return f"{readable}_{digest}"


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
        field, replacements = chat.subn(name, field)
        if replacements:
            return field
    return TOOL.sub(lambda tool: tools[int(tool[1])] if int(tool[1]) < len(tools) else tool[0], field)
