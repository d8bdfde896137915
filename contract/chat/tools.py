"""Tools of a chat request, in all forms that OpenAI's clients send.

    tools: Tool | CustomTool | BuiltInTool         a function, a tool that takes text, a tool that this server lacks
    tool_choice: a word | NamedTool | NamedCustomTool | AllowedChoice
    tool_calls of a message: ToolCall | CustomCall calls made earlier, repeated by the client

Engines know functions only. They get a custom tool as a function with one string, `INPUT`, and `models.chat.tools`
turns a call of it back into a custom one. A built-in tool is left out, and the reply says so. JSON schemas of functions
are accepted as they are; `contract.chat.schemas` bounds those that are compiled.

Arguments of earlier calls are never refused as malformed: one truncated call would end the conversation for good.
Engines get the JSON object that `read_arguments` makes of them, because chat templates take an object.
"""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, field_validator
from pydantic_core import from_json

from contract.base import Items, Lenient, type_of

MAX_TOOLS = 128
MAX_NAME_CHARS = 128
"""Characters of a tool's name. OpenAI's chats have at most 64, Anthropic's messages 128."""
NAME_PATTERN = rf"^[a-zA-Z0-9_-]{{1,{MAX_NAME_CHARS}}}$"
MAX_NAMESPACE_CHARS = 256
BUILT_IN_PATTERN = (
    "^((web_search|web_fetch|file_search|code_interpreter|code_execution|image_generation|tool_search|mcp|advisor)"
    "(_[a-z0-9_]+)?|computer(_use)?(_preview)?|local_shell|shell|apply_patch|programmatic_tool_calling)$"
)
"""Types of the built-in tools of OpenAI and Anthropic, many with a date at the end. Any other type is an error."""
INPUT = "input"
"""Name of the argument that holds the text of a custom tool."""

ANNOTATIONS = frozenset({"default", "examples", "description", "title", "$comment", "$schema"})
"""Keywords of a JSON schema that restrict nothing."""
NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}
"""Parameters of a function without arguments."""

Name = Annotated[str, Field(pattern=NAME_PATTERN)]


def _object(parameters: dict[str, Any]) -> dict[str, Any]:
    """Returns `parameters`, or NOTHING with their annotations if they would allow any value."""
    return parameters if parameters.keys() - ANNOTATIONS else parameters | NOTHING


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


class Function(ToolName):
    """Name and parameters of a tool. Without `parameters` it has none."""

    description: str | None = None
    parameters: Annotated[dict[str, Any], AfterValidator(_object)] = NOTHING
    strict: bool | None = None


class Tool(NamedTool):
    """A function that the model may ask the client to call."""

    function: Function

    @property
    def as_function(self) -> Tool:
        return self


class CustomFormat(Lenient):
    """Format of the input of a custom tool: any text. A grammar is refused."""

    type: Literal["text"]

    @field_validator("type", mode="before")
    @classmethod
    def _is_text(cls, kind: Any) -> Any:
        if kind == "grammar":
            # docs/decisions/0016-grammars-of-clients.md
            raise ValueError("custom tools support only free text (`text`); a grammar for their input is not supported")
        return kind


class Custom(ToolName):
    """Name, description and input format of a custom tool."""

    description: str | None = None
    format: CustomFormat | None = None


class CustomTool(NamedCustomTool):
    """A tool that takes text instead of JSON."""

    custom: Custom

    @property
    def as_function(self) -> Tool:
        """The function that replaces the tool for engines, with strict arguments."""
        text = {"type": "object", "properties": {INPUT: {"type": "string"}}, "required": [INPUT]}
        parameters = text | {"additionalProperties": False}
        about = self.custom.description
        return Tool(function=Function(name=self.name, description=about, parameters=parameters, strict=True))


class BuiltInTool(Lenient):
    """A built-in tool of another provider, such as a web search. It is not passed to the model."""

    type: Annotated[str, Field(pattern=BUILT_IN_PATTERN)]


def is_built_in(kind: Any) -> bool:
    """Returns True if the type `kind` is that of a built-in tool of another provider."""
    return isinstance(kind, str) and re.fullmatch(BUILT_IN_PATTERN, kind) is not None


FUNCTION, CUSTOM, BUILT_IN = "a function", "a custom tool", "a built-in tool"
ALLOWED, WORD = "allowed tools", "a word"
"""Branches of the unions below."""
BRANCHES = {"function": FUNCTION, "custom": CUSTOM, "allowed_tools": ALLOWED}


def _branch(value: Any) -> str | None:
    """Returns the branch of a tool. A tool without a type is a function."""
    kind = type_of(value)
    if kind is None and isinstance(value, dict):
        return FUNCTION
    return BRANCHES.get(kind) if isinstance(kind, str) else None


def _offered(value: Any) -> str | None:
    """Returns the branch of a tool, built-in tools included."""
    return BUILT_IN if is_built_in(type_of(value)) else _branch(value)


def _choice(value: Any) -> str | None:
    return WORD if isinstance(value, str) else _branch(value)


def one_of(sentence: str, branch: Any = _branch) -> Discriminator:
    """Returns a discriminator that selects a form by `branch`, by default that of a tool; `sentence` is its error."""
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
    """Subset of `tools` that the model may call, or of which it must call one with the mode `required`."""

    mode: Literal["auto", "required"]
    tools: Annotated[list[AnyName], Items(MAX_TOOLS, least=1)]

    @property
    def named(self) -> list[NamedTool | NamedCustomTool]:
        """Tools of the subset that can be called here."""
        return [tool for tool in self.tools if not isinstance(tool, BuiltInTool)]


class AllowedChoice(Lenient):
    """A `tool_choice` that allows some of the tools."""

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
    """Returns the tools that `choice` names; none for a word."""
    if isinstance(choice, AllowedChoice):
        return choice.allowed_tools.named
    return [choice] if isinstance(choice, NamedTool | NamedCustomTool) else []


def as_text(arguments: Any) -> str:
    """Returns `arguments` as JSON; a string counts as JSON already."""
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


Arguments = Annotated[str, BeforeValidator(as_text, json_schema_input_type=str)]
"""Arguments of a call: a JSON object as text, or the text that a model wrote instead."""


class CalledFunction(Lenient):
    """A call that the model made earlier."""

    name: str
    arguments: Arguments = "{}"


class ToolCall(Lenient):
    """A call of the assistant, repeated by the client."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction

    @property
    def as_function(self) -> ToolCall:
        """The call in the form for engines, with a JSON object as its arguments."""
        arguments = as_text(read_arguments(self.function.arguments))
        return ToolCall(id=self.id, function=CalledFunction(name=self.function.name, arguments=arguments))


class CalledCustom(Lenient):
    """A call of a custom tool that the model made earlier."""

    name: str
    input: str


class CustomCall(Lenient):
    """A call of a custom tool, repeated by the client."""

    id: str
    type: Literal["custom"]
    custom: CalledCustom

    @property
    def as_function(self) -> ToolCall:
        """The call of the function that replaces the custom tool for engines."""
        arguments = as_text({INPUT: self.custom.input})
        return ToolCall(id=self.id, function=CalledFunction(name=self.custom.name, arguments=arguments))


AnyCall = Annotated[
    Annotated[ToolCall, Tag(FUNCTION)] | Annotated[CustomCall, Tag(CUSTOM)],
    one_of("a tool call must be an object of type `function` or `custom`"),
]


def read_arguments(text: str) -> dict[str, Any]:
    """Returns the arguments of a call as an object, even if a limit of tokens truncated them.

    Arguments that are no object become the text of INPUT.
    """
    try:
        value = from_json(text.strip() or "{}", allow_partial="trailing-strings")
        json.dumps(value, allow_nan=False)  # 1e999 is read as infinity, which JSON does not have
    except ValueError:
        value = text
    return {} if value is None else value if isinstance(value, dict) else {INPUT: text}
