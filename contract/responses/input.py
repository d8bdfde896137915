"""What a response is asked with: items, each a message, a call of a tool, its output, or reasoning.

    Item                   one of them
    messages(...)          all of them as messages of a chat

Reasoning that clients send back is passed over: chat templates leave out what was thought in earlier turns. Nothing is
kept here, so no item can stand for another, and no file for an image.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import Tag, ValidationError

from contract.base import Lenient, type_of
from contract.body import explain
from contract.chat.calls import check_arguments
from contract.chat.request import Message, Part
from contract.chat.tools import one_of
from contract.errors import INVALID_REQUEST
from contract.responses.items import (
    BuiltInCall,
    BuiltInOutput,
    CallOutput,
    CustomToolCall,
    FunctionCall,
    Parts,
    Served,
    ServedItem,
)
from contract.responses.names import ToolNames


class InputMessage(Lenient):
    """One turn. `content` is a string or a list of parts."""

    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: Parts

    def fields(self, _names: ToolNames) -> dict[str, Any]:
        """The fields of the chat's message."""
        return {"role": self.role, "content": [part.part() for part in self.content]}


class ReasoningItem(Lenient):
    """What the model thought in an earlier turn; passed over."""

    type: Literal["reasoning"]

    def fields(self, _names: ToolNames) -> None:
        """No message."""


def _kind(item: Any) -> str | None:
    """Which of the tags below an item has."""
    name = type_of(item)
    if name is None and isinstance(item, dict) and "role" in item:
        name = "message"
    return TAGS.get(name) if isinstance(name, str) else None


TAGS = {
    "message": "item-message",
    "function_call": "item-function_call",
    "custom_tool_call": "item-custom_tool_call",
    "function_call_output": "item-call_output",
    "custom_tool_call_output": "item-call_output",
    "local_shell_call": "item-built_in_call",
    "shell_call": "item-built_in_call",
    "apply_patch_call": "item-built_in_call",
    "local_shell_call_output": "item-built_in_output",
    "shell_call_output": "item-built_in_output",
    "apply_patch_call_output": "item-built_in_output",
    "reasoning": "item-reasoning",
} | dict.fromkeys(get_args(Served), "item-served")
Item = Annotated[
    Annotated[InputMessage, Tag("item-message")]
    | Annotated[FunctionCall, Tag("item-function_call")]
    | Annotated[CustomToolCall, Tag("item-custom_tool_call")]
    | Annotated[CallOutput, Tag("item-call_output")]
    | Annotated[BuiltInCall, Tag("item-built_in_call")]
    | Annotated[BuiltInOutput, Tag("item-built_in_output")]
    | Annotated[ReasoningItem, Tag("item-reasoning")]
    | Annotated[ServedItem, Tag("item-served")],
    one_of(
        "an item is a `message`, a `function_call`, a `function_call_output`, a `custom_tool_call`, a "
        "`custom_tool_call_output`, `reasoning`, or what a built-in tool did; nothing is kept here, so "
        "`item_reference` and `compaction` are not taken",
        _kind,
    ),
]


def messages(instructions: str | None, items: Sequence[Item], names: ToolNames) -> list[Message]:
    """All of them as a chat: calls join the turn of the assistant that made them. Raises INVALID_REQUEST.

    `names` are those by which the model knows the tools.
    """
    check_arguments(
        (f"input[{index}]", item.arguments or "{}")
        for index, item in enumerate(items)
        if isinstance(item, FunctionCall)
    )
    turns: list[tuple[str, dict[str, Any]]] = []
    if instructions:
        turns.append(("instructions", {"role": "system", "content": [Part(type="text", text=instructions)]}))
    for place, message_fields in _messages_of(items, names):
        fields = {name: value for name, value in _message(place, message_fields) if value is not None}
        if turns and _is_continued(turns, fields):
            _join(turns[-1][1], fields)
        else:
            turns.append((place, fields))
    return [_message(place, fields) for place, fields in turns]


def _messages_of(items: Sequence[Item], names: ToolNames) -> Iterator[tuple[str, dict[str, Any]]]:
    """Place and fields of each message. Images that tools gave come as the user's, after the last output of a turn."""
    images: list[Part] = []
    place = ""
    for index, item in enumerate(items):
        if images and not isinstance(item, CallOutput):
            yield place, {"role": "user", "content": images}
            images = []
        place = f"input[{index}]"
        if (fields := item.fields(names)) is not None:
            yield place, fields
        if isinstance(item, CallOutput):
            images += item.images
    if images:
        yield place, {"role": "user", "content": images}


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
        cause = explain(error)
        # The field of the chat's message is no field here, and the sentence says what is meant.
        reason = cause.message.removeprefix(f"`{cause.param}`: ")
        raise INVALID_REQUEST(f"`{place}`: {reason}", param=place) from None
