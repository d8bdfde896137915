"""Tools of a message request: functions that the client runs. None runs here."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from contract.base import Lenient
from contract.chat.tools import Name


def _ours(tool: Any) -> Any:
    if isinstance(tool, dict) and isinstance(kind := tool.get("type"), str) and kind != "custom":
        raise ValueError(
            f"a tool of type `{kind[:64]}` is not served here; describe it as one of type `custom`, with `input_schema`"
        )
    return tool


class MessageTool(Lenient):
    """A function that the model may ask the client to call."""

    name: Name
    description: str | None = None
    input_schema: dict[str, Any]
    type: Literal["custom"] | None = None
    strict: bool | None = None


OfferedTool = Annotated[MessageTool, BeforeValidator(_ours, json_schema_input_type=MessageTool)]


class ToolChoice(Lenient):
    """Whether the model calls a tool: as it likes, any, the one that `name` says, or none."""

    type: Literal["auto", "any", "tool", "none"]
    name: Name | None = None
    disable_parallel_tool_use: bool | None = None

    @model_validator(mode="after")
    def _is_named(self) -> ToolChoice:
        if self.type == "tool" and self.name is None:
            raise ValueError("a choice of type `tool` needs the field `name`")
        return self


class AnswerFormat(Lenient):
    """The JSON schema that the answer follows."""

    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")
