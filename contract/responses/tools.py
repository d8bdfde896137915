"""Tools of a response, the choice between them, and the form of its answer; each as a chat has it.

Only tools that the client runs itself are taken. The built-in ones of OpenAI's API would run on the server.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from contract.base import Items, Lenient
from contract.chat.tools import MAX_TOOLS, Name


class ClientTool(Lenient):
    """A tool that the client runs: a `function` takes a JSON object, a `custom` one text."""

    type: Literal["function", "custom"]
    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    format: dict[str, Any] | None = None

    @field_validator("type", mode="before")
    @classmethod
    def _is_run_by_client(cls, kind: Any) -> Any:
        if isinstance(kind, str) and kind not in ("function", "custom"):
            raise ValueError(
                f"a tool is a `function` or `custom`, and the client runs it; `{kind[:64]}` would run on the server"
            )
        return kind

    def chat(self) -> dict[str, Any]:
        """As a tool of a chat."""
        said = {name: value for name, value in self.echo().items() if name != "type" and value is not None}
        return {"type": self.type, self.type: said}

    def echo(self) -> dict[str, Any]:
        """As the response repeats it."""
        said = {"type": self.type, "name": self.name, "description": self.description}
        if self.type == "function":
            return said | {"parameters": self.parameters, "strict": self.strict}
        return said | ({"format": self.format} if self.format else {})


class NamedChoice(Lenient):
    """One tool, by its name."""

    type: Literal["function", "custom"]
    name: Name

    def chat(self) -> dict[str, Any]:
        """As the choice of a chat."""
        return {"type": self.type, self.type: {"name": self.name}}


class ToolSubset(Lenient):
    """Some of the tools: those that the model may call, or of which it must call one."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[list[NamedChoice], Items(MAX_TOOLS, least=1)]

    def chat(self) -> dict[str, Any]:
        """As the choice of a chat."""
        allowed = {"mode": self.mode, "tools": [tool.chat() for tool in self.tools]}
        return {"type": self.type, self.type: allowed}


def _kind(choice: Any) -> str | None:
    """Which of the tags below a choice has."""
    if isinstance(choice, str):
        return "choice-word" if choice in ("none", "auto", "required") else None
    name = choice.get("type") if isinstance(choice, dict) else getattr(choice, "type", None)
    return {"function": "choice-tool", "custom": "choice-tool", "allowed_tools": "choice-allowed"}.get(str(name))


ToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("choice-word")]
    | Annotated[NamedChoice, Tag("choice-tool")]
    | Annotated[ToolSubset, Tag("choice-allowed")],
    Discriminator(
        _kind,
        custom_error_type="tool_choice",
        custom_error_message="a choice is `none`, `auto`, `required`, a `function` or `custom` tool by its name, or "
        "`allowed_tools`",
    ),
]


class TextFormat(Lenient):
    """Form of the answer: free text, any JSON object, or JSON that follows a schema."""

    type: Literal["text", "json_object", "json_schema"]
    name: Name | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    description: str | None = None
    strict: bool | None = None

    @model_validator(mode="after")
    def _schema_is_there(self) -> TextFormat:
        if self.type == "json_schema" and (self.name is None or self.schema_ is None):
            raise ValueError("a format of type `json_schema` needs the fields `name` and `schema`")
        return self

    def chat(self) -> dict[str, Any]:
        """As the format of a chat's answer."""
        said = self.echo()
        kind = said.pop("type")
        return {"type": kind, kind: said} if kind == "json_schema" else {"type": kind}

    def echo(self) -> dict[str, Any]:
        """As the response repeats it."""
        named = self.model_dump(by_alias=True, exclude_none=True)
        return named if self.type == "json_schema" else {"type": self.type}


class TextConfig(Lenient):
    """How the answer is written. `verbosity` is for models that were trained for it; it is read and has no effect."""

    format: TextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None
