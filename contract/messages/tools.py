"""Tools of a message request: functions that the client runs, and those of a server, which are left out here."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from contract.base import Lenient, type_of
from contract.chat.tools import BuiltInTool, Name, is_built_in


class MessageTool(Lenient):
    """A function that the model may ask the client to call."""

    name: Name
    description: str | None = None
    input_schema: dict[str, Any]
    type: Literal["custom"] | None = None
    strict: bool | None = None


class ServerTool(BuiltInTool):
    """A tool that Anthropic's servers run. The model is not told of it, and the reply says so."""

    name: str | None = None


# Tags are no identifiers, so that the place of an error does not name them.
CLIENT, SERVER = "(a tool)", "(a tool of a server)"


def _kind(tool: Any) -> str | None:
    """Which of the two a tool is; what has no type is one of the client's."""
    kind = type_of(tool)
    if is_built_in(kind):
        return SERVER
    return CLIENT if kind in (None, "custom") else None


OfferedTool = Annotated[
    Annotated[MessageTool, Tag(CLIENT)] | Annotated[ServerTool, Tag(SERVER)],
    Discriminator(
        _kind,
        custom_error_type="tool_type",
        custom_error_message="a tool is one of type `custom`, with `input_schema`, or one that Anthropic's servers "
        "run, such as `web_search_20250305`; describe one that you run yourself as `custom`",
    ),
]


class ToolChoice(Lenient):
    """Whether the model calls a tool: as it likes, any, the one that `name` says, or none."""

    type: Literal["auto", "any", "tool", "none"]
    name: Name | None = None
    disable_parallel_tool_use: bool | None = None

    @model_validator(mode="after")
    def _is_named(self) -> ToolChoice:
        if self.type == "tool" and self.name is None:
            raise ValueError("a `tool_choice` of type `tool` needs the field `name`")
        return self


class AnswerFormat(Lenient):
    """The JSON schema that the answer follows."""

    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")
