"""Tools and answer formats of a chat request. Spec 4.

The JSON schemas that both carry are taken as they come; those that are compiled are bounded in `contract.chat.schemas`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from contract.base import Lenient

MAX_TOOLS = 128
NAME_PATTERN = r"^[a-zA-Z0-9_-]{1,64}$"

Name = Annotated[str, Field(pattern=NAME_PATTERN)]


class Function(Lenient):
    """What a tool is called and takes. Without `parameters` it takes none."""

    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Lenient):
    """A function that the model may ask the client to call."""

    type: Literal["function"]
    function: Function


class FunctionName(Lenient):
    """A function by name."""

    name: Name


class NamedTool(Lenient):
    """A `tool_choice` that forces one function."""

    type: Literal["function"]
    function: FunctionName


class AnswerSchema(Lenient):
    """The schema that the answer follows, under a name of the client's choice."""

    name: Name
    description: str | None = None
    schema_: dict[str, Any] = Field({}, alias="schema")
    strict: bool | None = None


class ResponseFormat(Lenient):
    """Form of the answer: free text, any JSON object, or JSON that follows a schema."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: AnswerSchema | None = None

    @model_validator(mode="after")
    def _schema_is_there(self) -> ResponseFormat:
        if self.type == "json_schema" and self.json_schema is None:
            raise ValueError("`response_format` of type `json_schema` needs the field `json_schema`")
        return self
