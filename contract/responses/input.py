"""What a response is asked with: items, each a message, a call of a tool, its output, or reasoning.

    Item                   one of them
    messages(...)          all of them as messages of a chat

Reasoning that clients send back is passed over: chat templates leave out what was thought in earlier turns. Nothing is
kept here, so no item can stand for another, and no file for an image.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Tag, ValidationError, field_validator, model_validator

from contract.base import Items, Lenient
from contract.body import explain
from contract.chat.arguments import check_arguments
from contract.chat.request import MAX_PARTS, ImageUrl, Message, Part
from contract.chat.tools import Id, Name
from contract.errors import INVALID_REQUEST
from contract.images import decoded_bytes


class ContentPart(Lenient):
    """A piece of a message or of a tool's output: text, or an image in the body itself."""

    type: Literal["input_text", "output_text", "refusal", "input_image"]
    text: str | None = None
    refusal: str | None = None
    image_url: str | None = None
    detail: Literal["auto", "low", "high", "original"] | None = None

    @field_validator("image_url")
    @classmethod
    def _is_data(cls, url: str | None) -> str | None:
        if url is not None:
            decoded_bytes(url)
        return url

    @model_validator(mode="after")
    def _is_filled(self) -> ContentPart:
        if self.type == "input_image" and self.image_url is None:
            raise ValueError("an image is given as `image_url`, a `data:` address; no file is kept here")
        if self.type != "input_image" and self._words is None:
            field = "refusal" if self.type == "refusal" else "text"
            raise ValueError(f"a part of type `{self.type}` needs the field `{field}`")
        return self

    @property
    def _words(self) -> str | None:
        return self.refusal if self.type == "refusal" else self.text

    def part(self) -> Part:
        """As a part of a message."""
        if self.image_url is None or self.type != "input_image":
            return Part(type="text", text=self._words)
        # The address was looked at above, and reading megabytes twice is dear.
        image = ImageUrl.model_construct(
            url=self.image_url, detail="high" if self.detail == "original" else self.detail
        )
        return Part(type="image_url", image_url=image)


Parts = Annotated[
    Annotated[list[ContentPart], Items(MAX_PARTS)],
    BeforeValidator(
        lambda v: [{"type": "input_text", "text": v}] if isinstance(v, str) else v,
        json_schema_input_type=str | list[ContentPart],
    ),
]


class InputMessage(Lenient):
    """One turn. `content` is a string or parts on the wire, and parts here."""

    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: Parts

    def fields(self) -> dict[str, Any]:
        """Of the message of a chat."""
        role = "system" if self.role == "developer" else self.role
        return {"role": role, "content": [part.part() for part in self.content]}


class FunctionCall(Lenient):
    """A call that the model made earlier. `arguments` is a JSON object as text."""

    type: Literal["function_call"]
    call_id: Id
    name: Name
    arguments: str

    def fields(self) -> dict[str, Any]:
        """Of the message of a chat."""
        function = {"name": self.name, "arguments": self.arguments}
        return _called({"id": self.call_id, "type": "function", "function": function})


class CustomToolCall(Lenient):
    """A call of a tool that takes free text."""

    type: Literal["custom_tool_call"]
    call_id: Id
    name: Name
    input: str

    def fields(self) -> dict[str, Any]:
        """Of the message of a chat."""
        return _called({"id": self.call_id, "type": "custom", "custom": {"name": self.name, "input": self.input}})


class CallOutput(Lenient):
    """What a tool answered: text."""

    type: Literal["function_call_output", "custom_tool_call_output"]
    call_id: Id
    output: Parts

    @field_validator("output")
    @classmethod
    def _is_text(cls, output: list[ContentPart]) -> list[ContentPart]:
        if any(part.type == "input_image" for part in output):
            raise ValueError("the output of a tool is text here; give images in a message of role `user`")
        return output

    def fields(self) -> dict[str, Any]:
        """Of the message of a chat."""
        return {"role": "tool", "tool_call_id": self.call_id, "content": [part.part() for part in self.output]}


class ReasoningItem(Lenient):
    """What the model thought in an earlier turn; passed over."""

    type: Literal["reasoning"]

    def fields(self) -> None:
        """No message."""
        return None


def _kind(item: Any) -> str | None:
    """Which of the tags below an item has."""
    name = item.get("type") if isinstance(item, dict) else getattr(item, "type", None)
    if name is None and isinstance(item, dict) and "role" in item:
        name = "message"
    name = "call_output" if name in ("function_call_output", "custom_tool_call_output") else name
    tag = f"item-{name}"
    return tag if tag in TAGS else None


TAGS = {f"item-{name}" for name in ("message", "function_call", "custom_tool_call", "call_output", "reasoning")}
Item = Annotated[
    Annotated[InputMessage, Tag("item-message")]
    | Annotated[FunctionCall, Tag("item-function_call")]
    | Annotated[CustomToolCall, Tag("item-custom_tool_call")]
    | Annotated[CallOutput, Tag("item-call_output")]
    | Annotated[ReasoningItem, Tag("item-reasoning")],
    Discriminator(
        _kind,
        custom_error_type="item_type",
        custom_error_message="an item is a `message`, a `function_call`, a `function_call_output`, a "
        "`custom_tool_call`, a `custom_tool_call_output` or `reasoning`; nothing else is kept or run here, so "
        "`item_reference` and the items of built-in tools are not taken",
    ),
]


def messages(instructions: str | None, items: Sequence[Item]) -> list[Message]:
    """All of them as a chat: calls join the turn of the assistant that made them. Raises INVALID_REQUEST."""
    check_arguments(
        (f"input[{index}]", item.arguments or "{}")
        for index, item in enumerate(items)
        if isinstance(item, FunctionCall)
    )
    turns: list[tuple[str, dict[str, Any]]] = []
    if instructions:
        turns.append(("instructions", {"role": "system", "content": [Part(type="text", text=instructions)]}))
    for index, item in enumerate(items):
        if (given := item.fields()) is None:
            continue
        place = f"input[{index}]"
        fields = {name: value for name, value in _message(place, given) if value is not None}
        if turns and _is_continued(turns, fields):
            _join(turns[-1][1], fields)
        else:
            turns.append((place, fields))
    return [_message(place, fields) for place, fields in turns]


def _called(call: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [call]}


def _is_continued(turns: list[tuple[str, dict[str, Any]]], fields: dict[str, Any]) -> bool:
    before = turns[-1][1]
    if before["role"] != fields["role"]:
        return False
    # Many templates know one system message, the first.
    return "tool_calls" in fields or (fields["role"] == "system" and len(turns) == 1)


def _join(before: dict[str, Any], fields: dict[str, Any]) -> None:
    for name in ("content", "tool_calls"):
        if name in fields:
            before.setdefault(name, []).extend(fields[name])


def _message(place: str, fields: dict[str, Any]) -> Message:
    try:
        return Message.model_validate(fields)
    except ValidationError as error:
        found = explain(error)
        # The field of the chat's message is no field here, and the sentence says what is meant.
        reason = found.message.removeprefix(f"`{found.param}`: ")
        raise INVALID_REQUEST(f"`{place}`: {reason}", param=place) from None
