"""What is judged on OpenAI's wire of decisions, as a model reads it: messages, calls of tools and their outputs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import model_validator

from contract.base import Items, Lenient
from contract.decisions.decision import check_image
from contract.decisions.questions import state_text
from contract.limits import MAX_PARTS


class InputPart(Lenient):
    """A piece of a message or of a question's text."""

    type: Literal["input_text", "output_text", "refusal", "input_json", "input_image"]
    text: str | None = None
    refusal: str | None = None
    data: dict[str, Any] | list[Any] | None = None
    image_url: str | None = None

    @model_validator(mode="after")
    def _check(self) -> InputPart:
        if self.type == "input_image":
            check_image(self.image_url or "")
        elif self.text is None and self.refusal is None and self.data is None:
            raise ValueError(f"a part of type `{self.type}` is empty")
        return self

    def words(self) -> str:
        """The part as text; an image has none."""
        return self.text or self.refusal or ("" if self.data is None else state_text(self.data))


Parts = str | Annotated[list[InputPart], Items(MAX_PARTS)]


def words_of(parts: Parts) -> str:
    """`parts` as text, without their images."""
    return parts if isinstance(parts, str) else "\n".join(filter(None, (part.words() for part in parts)))


class InputItem(Lenient):
    """A message, a call of a tool, or its output."""

    type: Literal["message", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output"] = (
        "message"
    )
    role: Literal["user", "developer", "system", "assistant"] | None = None
    content: Parts = ""
    name: str = ""
    arguments: str = ""
    input: str = ""
    output: Parts = ""

    def words(self) -> str:
        if self.type == "message":
            return f"{self.role or 'user'}: {words_of(self.content)}"
        if self.type.endswith("_output"):
            return f"tool: {words_of(self.output)}"
        return f"call of {self.name}: {self.arguments or self.input}"
