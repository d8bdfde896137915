"""Tools of a chat request, in all forms that OpenAI's clients send.

    tools: Tool | CustomTool | BuiltInTool         a function with arguments, a tool that takes text, one that we lack
    tool_choice: a word | NamedTool | NamedCustomTool | AllowedChoice
    tool_calls of a message: ToolCall | CustomCall calls made earlier, repeated by the client

Engines know functions only. A custom tool is given to them as a function with one string, `INPUT`, and a call of it is
put back into its own form in `models.chat.tools`. A built-in tool is left out, and the reply says so. The JSON schemas
of functions are taken as they come; those that are compiled are bounded in `contract.chat.schemas`.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, field_validator

from contract.base import Items, Lenient, type_of

MAX_TOOLS = 128
NAME_PATTERN = r"^[a-zA-Z0-9_-]{1,64}$"
MAX_ID_CHARS = 256
BUILT_IN_PATTERN = (
    "^((web_search|web_fetch|file_search|code_interpreter|code_execution|image_generation|tool_search|mcp|advisor)"
    "(_[a-z0-9_]+)?|computer(_use)?(_preview)?|local_shell|shell|apply_patch|programmatic_tool_calling)$"
)
"""Types of tools that OpenAI and Anthropic bring along; many have a date behind. Any other is a slip of the pen."""
INPUT = "input"
"""The argument that carries the text of a custom tool."""

Name = Annotated[str, Field(pattern=NAME_PATTERN)]
Id = Annotated[str, Field(min_length=1, max_length=MAX_ID_CHARS)]


class Function(Lenient):
    """What a tool is called and takes. Without `parameters` it takes none."""

    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Lenient):
    """A function that the model may ask the client to call."""

    type: Literal["function"] = "function"
    function: Function

    @property
    def name(self) -> str:
        return self.function.name

    @property
    def as_function(self) -> Tool:
        return self


class CustomFormat(Lenient):
    """What text a custom tool takes: any. A grammar is refused (docs/decisions/0016-grammars-of-clients.md)."""

    type: Literal["text"]

    @field_validator("type", mode="before")
    @classmethod
    def _is_text(cls, kind: Any) -> Any:
        if kind == "grammar":
            raise ValueError("custom tools support only free text (`text`); a grammar for their input is not supported")
        return kind


class Custom(Lenient):
    """What a custom tool is called."""

    name: Name
    description: str | None = None
    format: CustomFormat | None = None


class CustomTool(Lenient):
    """A tool that takes text, where a function takes JSON."""

    type: Literal["custom"]
    custom: Custom

    @property
    def name(self) -> str:
        return self.custom.name

    @property
    def as_function(self) -> Tool:
        """The function that engines are given instead; its arguments are always followed."""
        text = {"type": "object", "properties": {INPUT: {"type": "string"}}, "required": [INPUT]}
        parameters = text | {"additionalProperties": False}
        about = self.custom.description
        return Tool(function=Function(name=self.name, description=about, parameters=parameters, strict=True))


class BuiltInTool(Lenient):
    """A tool that another provider brings along, such as a search of the web. The model is not told of it."""

    type: Annotated[str, Field(pattern=BUILT_IN_PATTERN)]


def is_built_in(kind: Any) -> bool:
    """Whether a tool of the type `kind` is one that other providers bring along."""
    return isinstance(kind, str) and re.fullmatch(BUILT_IN_PATTERN, kind) is not None


class ToolName(Lenient):
    """A tool by name."""

    name: Name


class NamedTool(Lenient):
    """A function by name."""

    type: Literal["function"] = "function"
    function: ToolName

    @property
    def name(self) -> str:
        return self.function.name


class NamedCustomTool(Lenient):
    """A custom tool by name."""

    type: Literal["custom"]
    custom: ToolName

    @property
    def name(self) -> str:
        return self.custom.name


FUNCTION, CUSTOM, BUILT_IN = "a function", "a custom tool", "a built-in tool"
ALLOWED, WORD = "allowed tools", "a word"
"""Branches of the unions below. They are no identifiers, so that the place of an error does not name them."""
BRANCHES = {"function": FUNCTION, "custom": CUSTOM, "allowed_tools": ALLOWED}


def _branch(value: Any) -> str | None:
    """Which form of a tool `value` is; what has no type is a function."""
    kind = type_of(value)
    if kind is None and isinstance(value, dict):
        return FUNCTION
    return BRANCHES.get(kind) if isinstance(kind, str) else None


def _offered(value: Any) -> str | None:
    """The same where built-in tools may stand too."""
    return BUILT_IN if is_built_in(type_of(value)) else _branch(value)


def _choice(value: Any) -> str | None:
    return WORD if isinstance(value, str) else _branch(value)


def one_of(sentence: str, branch: Any = _branch) -> Discriminator:
    """Decides by `branch` between the forms of a value, which is by default a tool; `sentence` is the error."""
    return Discriminator(branch, custom_error_type="unknown_form", custom_error_message=sentence)


AnyTool = Annotated[
    Annotated[Tool, Tag(FUNCTION)] | Annotated[CustomTool, Tag(CUSTOM)] | Annotated[BuiltInTool, Tag(BUILT_IN)],
    one_of("a tool must be an object of type `function` or `custom`", _offered),
]
AnyName = Annotated[
    Annotated[NamedTool, Tag(FUNCTION)]
    | Annotated[NamedCustomTool, Tag(CUSTOM)]
    | Annotated[BuiltInTool, Tag(BUILT_IN)],
    one_of("a tool must be named by an object of type `function` or `custom`", _offered),
]


class AllowedTools(Lenient):
    """Those of `tools` that the model may call, or, with the mode `required`, must call one of."""

    mode: Literal["auto", "required"]
    tools: Annotated[list[AnyName], Items(MAX_TOOLS, least=1)]

    @property
    def named(self) -> list[NamedTool | NamedCustomTool]:
        """Those that can be called here."""
        return [tool for tool in self.tools if not isinstance(tool, BuiltInTool)]


class AllowedChoice(Lenient):
    """A `tool_choice` that leaves some of the tools."""

    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


ToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag(WORD)]
    | Annotated[NamedTool, Tag(FUNCTION)]
    | Annotated[NamedCustomTool, Tag(CUSTOM)]
    | Annotated[AllowedChoice, Tag(ALLOWED)],
    one_of(
        "send `none`, `auto`, `required`, or an object of type `function`, `custom` or `allowed_tools`; a built-in "
        "tool cannot be chosen, because this server runs none",
        _choice,
    ),
]


def named(choice: ToolChoice | None) -> list[NamedTool | NamedCustomTool]:
    """The tools that `choice` names; none for a word."""
    if isinstance(choice, AllowedChoice):
        return choice.allowed_tools.named
    return [choice] if isinstance(choice, NamedTool | NamedCustomTool) else []
