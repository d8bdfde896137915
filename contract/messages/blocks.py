"""Pieces of a message: text, images, calls of tools and their results, thoughts."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Tag, field_validator

from contract.base import Items, Lenient, type_of
from contract.chat.request import as_parts
from contract.chat.tools import Id, Name
from contract.images import decoded_bytes
from contract.limits import MAX_PARTS


class TextBlock(Lenient):
    """Text."""

    type: Literal["text"]
    text: str


class Base64Source(Lenient):
    """An image in the body itself: nothing is ever fetched for a client."""

    type: Literal["base64"]
    media_type: Literal["image/jpeg", "image/png", "image/gif", "image/webp"]
    data: str

    @property
    def address(self) -> str:
        return f"data:{self.media_type};base64,{self.data}"

    @field_validator("data")
    @classmethod
    def _is_base64(cls, data: str) -> str:
        decoded_bytes(f"data:image/png;base64,{data}")
        return data


def _inline(source: Any) -> Any:
    if isinstance(source, dict) and isinstance(kind := source.get("type"), str) and kind != "base64":
        raise ValueError(f"a source of type `{kind[:64]}` is not fetched; send the image itself as `base64`")
    return source


class ImageBlock(Lenient):
    """An image."""

    type: Literal["image"]
    source: Annotated[Base64Source, BeforeValidator(_inline, json_schema_input_type=Base64Source)]


class ToolUseBlock(Lenient):
    """A call that the model made earlier in the conversation."""

    type: Literal["tool_use"]
    id: Id
    name: Name
    input: dict[str, Any]


class ThinkingBlock(Lenient):
    """Thoughts of an earlier answer. They are taken back, and not shown to the model again."""

    type: Literal["thinking"]
    thinking: str


class RedactedThinkingBlock(Lenient):
    """The same, unreadable."""

    type: Literal["redacted_thinking"]


def _one_of(*types: str) -> BeforeValidator:
    """Refuses blocks of another type with a sentence that names it."""

    def check(block: Any) -> Any:
        kind = type_of(block)
        if kind not in types:
            came = f"of type `{kind[:64]}`" if isinstance(kind, str) else "without a type"
            raise ValueError(f"a block {came} is not supported; supported are {', '.join(types)}")
        return block

    return BeforeValidator(check)


# A tag is no identifier, so that the place of a finding does not name it.
_Text = Annotated[TextBlock, Tag("(text)")]
_Image = Annotated[ImageBlock, Tag("(image)")]
_BY_TYPE = Discriminator(lambda block: f"({type_of(block)})")

ResultPart = Annotated[_Text | _Image, _BY_TYPE, _one_of("text", "image")]


class ToolResultBlock(Lenient):
    """What a tool gave back. `is_error`: it failed, and `content` says why."""

    type: Literal["tool_result"]
    tool_use_id: Id
    content: Annotated[
        Annotated[list[ResultPart], Items(MAX_PARTS)],
        BeforeValidator(as_parts, json_schema_input_type=str | list[ResultPart]),
    ] = []
    is_error: bool | None = None


Block = Annotated[
    _Text
    | _Image
    | Annotated[ToolUseBlock, Tag("(tool_use)")]
    | Annotated[ToolResultBlock, Tag("(tool_result)")]
    | Annotated[ThinkingBlock, Tag("(thinking)")]
    | Annotated[RedactedThinkingBlock, Tag("(redacted_thinking)")],
    _BY_TYPE,
    _one_of("text", "image", "tool_use", "tool_result", "thinking", "redacted_thinking"),
]
