"""Tools of a response, the choice between them, and the form of its answer, with their conversion to those of a chat.

    OfferedTool     a tool that the client runs, a namespace of such tools, or a built-in tool, which a chat leaves out
    PlacedTool      a tool of the request with its path, alone or in a namespace
    ToolChoice      a word, one tool by its name, or some tools

A namespace is a named group of tools. Models have none, so each tool of a group gets one name for the model:

    {"type": "namespace", "name": "crm", "tools": [{"type": "function", "name": "find"}]}
    name for the model        crm__find
    call in the reply         {"type": "function_call", "namespace": "crm", "name": "find"}
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, Tag

from contract.base import Items, Lenient, needs, type_of
from contract.chat.tools import (
    ALLOWED,
    BUILT_IN,
    MAX_NAME_CHARS,
    MAX_NAMESPACE_CHARS,
    MAX_TOOLS,
    NAME_PATTERN,
    WORD,
    BuiltInTool,
    Name,
    is_built_in,
    one_of,
)
from contract.errors import INVALID_REQUEST, ApiError

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


@contextmanager
def translate_errors(tools: Sequence[str]) -> Iterator[None]:
    """Reraises an ApiError with the names of this wire. `tools` are the paths of the chat's tools here."""
    try:
        yield
    except ApiError as error:
        raise error.renamed(lambda field: here(field, tools)) from error


def here(field: str, tools: Sequence[str]) -> str:
    """Returns the name on this wire of the `field` of a chat."""
    for chat, name in NAMES:
        field, replacements = chat.subn(name, field)
        if replacements:
            return field
    return TOOL.sub(lambda tool: tools[int(tool[1])] if int(tool[1]) < len(tools) else tool[0], field)


class ClientTool(Lenient):
    """A tool that the client runs: a `function` takes a JSON object, a `custom` one text."""

    type: Literal["function", "custom"]
    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    format: dict[str, Any] | None = None

    def chat(self, name: str) -> dict[str, Any]:
        """Returns the tool of a chat, under the name `name`."""
        members = {name: value for name, value in self.echo().items() if name != "type" and value is not None}
        return {"type": self.type, self.type: members | {"name": name}}

    def echo(self) -> dict[str, Any]:
        """Returns the form that the response repeats."""
        members = {"type": self.type, "name": self.name, "description": self.description}
        if self.type == "function":
            return members | {"parameters": self.parameters, "strict": self.strict}
        return members | ({"format": self.format} if self.format else {})


CLIENT, NAMESPACE = "a tool", "a namespace"


def _client(tool: Any) -> str | None:
    """Returns the tag of a tool that the client runs, or of its name."""
    return CLIENT if type_of(tool) in ("function", "custom") else None


def _offered(tool: Any) -> str | None:
    """Returns the tag of any entry of `tools`."""
    kind = type_of(tool)
    return NAMESPACE if kind == "namespace" else BUILT_IN if is_built_in(kind) else _client(tool)


NamespaceMember = Annotated[
    Annotated[ClientTool, Tag(CLIENT)], one_of("a tool of a namespace must be a `function` or `custom`", _client)
]


class NamespaceTool(Lenient):
    """A named group of tools. The description of the group precedes that of its first tool."""

    type: Literal["namespace"]
    name: Annotated[str, Field(min_length=1, max_length=MAX_NAMESPACE_CHARS)]
    description: str | None = None
    tools: Annotated[list[NamespaceMember], Items(MAX_TOOLS)]

    def echo(self) -> dict[str, Any]:
        tools = [tool.echo() for tool in self.tools]
        return {"type": self.type, "name": self.name, "description": self.description, "tools": tools}

    def members(self) -> list[ClientTool]:
        """Returns the tools of the group, in the form for the model."""
        if not self.description or not self.tools:
            return self.tools
        first = self.tools[0]
        about = "\n\n".join(filter(None, (self.description, first.description)))
        return [first.model_copy(update={"description": about}), *self.tools[1:]]


OfferedTool = Annotated[
    Annotated[ClientTool, Tag(CLIENT)]
    | Annotated[NamespaceTool, Tag(NAMESPACE)]
    | Annotated[BuiltInTool, Tag(BUILT_IN)],
    one_of(
        "a tool is a `function`, `custom`, a `namespace` of such tools, or a built-in one of OpenAI's API, such as "
        "`web_search`",
        _offered,
    ),
]


@dataclass(frozen=True, slots=True)
class PlacedTool:
    """A tool of the request, with its path there, such as `tools[1].tools[0]`, and its namespace, if it has one."""

    place: str
    tool: ClientTool | BuiltInTool
    namespace: str | None = None


def placed_tools(tools: Iterable[ClientTool | NamespaceTool | BuiltInTool]) -> Iterator[PlacedTool]:
    """Yields all tools in order, those of namespaces included."""
    for index, tool in enumerate(tools):
        if isinstance(tool, NamespaceTool):
            members = enumerate(tool.members())
            yield from (PlacedTool(f"tools[{index}].tools[{at}]", member, tool.name) for at, member in members)
        else:
            yield PlacedTool(f"tools[{index}]", tool)


class NamedChoice(Lenient):
    """One tool by its name, and if needed by its namespace."""

    type: Literal["function", "custom"]
    name: Name
    namespace: str | None = None

    def chat(self, names: ToolNames) -> dict[str, Any]:
        """Returns the choice in a chat. Raises INVALID_REQUEST if several tools match."""
        namespaces = names.namespaces_of(self.name) if self.namespace is None else [self.namespace]
        if len(namespaces) > 1:
            raise INVALID_REQUEST(
                f"`tool_choice` names `{self.name}`, which {len(namespaces)} namespaces have; choose by `namespace`",
                param="tool_choice",
            )
        return {"type": self.type, self.type: {"name": names.of(namespaces[0], self.name)}}


SubsetMember = Annotated[
    Annotated[NamedChoice, Tag(CLIENT)] | Annotated[BuiltInTool, Tag(BUILT_IN)],
    one_of("a tool must be named by an object of type `function` or `custom`", _offered),
]


class ToolSubset(Lenient):
    """Subset of the tools that the model may call, or of which it must call one."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[list[SubsetMember], Items(MAX_TOOLS, least=1)]

    def chat(self, names: ToolNames) -> dict[str, Any]:
        """Returns the choice in a chat. Raises INVALID_REQUEST if one name matches several tools."""
        tools = [tool.chat(names) if isinstance(tool, NamedChoice) else {"type": tool.type} for tool in self.tools]
        allowed = {"mode": self.mode, "tools": tools}
        return {"type": self.type, self.type: allowed}


def _choice(choice: Any) -> str | None:
    if isinstance(choice, str):
        return WORD if choice in ("none", "auto", "required") else None
    return ALLOWED if type_of(choice) == "allowed_tools" else _client(choice)


ToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag(WORD)]
    | Annotated[NamedChoice, Tag(CLIENT)]
    | Annotated[ToolSubset, Tag(ALLOWED)],
    one_of(
        "a choice is `none`, `auto`, `required`, a `function` or `custom` tool by its name, or `allowed_tools`; a "
        "built-in tool cannot be chosen, because this server runs none",
        _choice,
    ),
]


class TextFormat(Lenient):
    """Form of the answer: free text, any JSON object, or JSON that follows a schema."""

    type: Literal["text", "json_object", "json_schema"]
    name: Name | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    description: str | None = None
    strict: bool | None = None

    _schema_is_there = needs(
        "json_schema", "name", "schema_", fault="a format of type `json_schema` needs the fields `name` and `schema`"
    )

    def chat(self) -> dict[str, Any]:
        members = self.echo()
        kind = members.pop("type")
        return {"type": kind, kind: members} if kind == "json_schema" else {"type": kind}

    def echo(self) -> dict[str, Any]:
        named = self.model_dump(by_alias=True, exclude_none=True)
        return named if self.type == "json_schema" else {"type": self.type}


class TextConfig(Lenient):
    """Form of the answer. `verbosity`, for models that were trained for it, is accepted without effect."""

    format: TextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None
