"""Namespaces: named groups of tools. Models have no namespaces, so each tool of a group gets one name for the model.

{"type": "namespace", "name": "crm", "tools": [{"type": "function", "name": "find"}]}
name for the model        crm__find
call in the reply         {"type": "function_call", "namespace": "crm", "name": "find"}
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from contract.chat.tools import MAX_NAME_CHARS, NAME_PATTERN
from contract.errors import ApiError

DIGEST_CHARS = 8
Path = tuple[str | None, str]
"""Namespace of a tool, or None, and the name of the tool in it."""


class ToolNames:
    """Mapping between the tools of one request and their names for the model."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._path_of: dict[str, Path] = {}
        # Tools without a namespace keep their name, so they come first.
        for path in sorted(set(paths), key=lambda path: (path[0] or "", path[1])):
            name = model_name(*path)
            self._path_of[model_name(*path, is_taken=True) if name in self._path_of else name] = path
        self._name_of = {path: name for name, path in self._path_of.items()}

    def of(self, namespace: str | None, name: str) -> str:
        """Returns the name of a tool for the model, even if the request repeats calls of it without offering it."""
        path = (namespace or None, name)
        return self._name_of.get(path) or model_name(*path)

    def path(self, name: str) -> Path:
        """Returns the tool with the name `name` for the model."""
        return self._path_of.get(name, (None, name))

    def namespaces_of(self, name: str) -> list[str | None]:
        """Returns the namespaces with a tool `name`; `[None]` if it has no namespace, or does not exist."""
        namespaces = [namespace for namespace, tool_name in self._name_of if tool_name == name]
        return [None] if None in namespaces else namespaces or [None]


def model_name(namespace: str | None, name: str, *, is_taken: bool = False) -> str:
    """Returns one name for a tool. It ends with a digest if it is too long, has invalid characters, or `is_taken`."""
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
"""Fields of a chat, and their names on this wire."""
TOOL = re.compile(r"^tools\[(\d+)\](\.(function|custom)\b)?")
"""Path of a tool in a chat, which has no namespaces."""
QUOTED = re.compile(r"`([^`]{1,200})`")
"""Name of a field inside a sentence."""


@contextmanager
def translate_errors(tools: Sequence[str]) -> Iterator[None]:
    """Reraises an ApiError with the names of this wire. `tools` are the paths of the chat's tools here."""
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
    """Returns the name on this wire of the `field` of a chat."""
    for chat, name in NAMES:
        field, replacements = chat.subn(name, field)
        if replacements:
            return field
    return TOOL.sub(lambda tool: tools[int(tool[1])] if int(tool[1]) < len(tools) else tool[0], field)
