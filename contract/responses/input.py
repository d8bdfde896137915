"""Input of a response: items, each a message, a call of a tool, its output, or reasoning.

    Item                                         one item
    messages(...)                                all items as messages of a chat
    FunctionCall, CustomToolCall, CallOutput     of tools that clients describe
    BuiltInCall, BuiltInOutput                   of built-in tools of OpenAI's API that clients run: functions here
    ServedItem                                   of tools that OpenAI's servers run: ignored, and the reply says so

Reasoning from clients is ignored, because chat templates leave out the reasoning of earlier turns. The server stores
nothing, so an item cannot refer to another one, nor an image to a file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Annotated, Any, Literal, get_args

from pydantic import AliasChoices, Field, Tag, ValidationError, model_validator

from contract.base import Items, Lenient, from_text, type_of
from contract.body import explain
from contract.chat.request import Message, Part
from contract.chat.tools import Arguments, one_of
from contract.errors import INVALID_REQUEST
from contract.images import DataUrl, ImageUrl
from contract.limits import MAX_PARTS
from contract.responses.tools import ToolNames


class ContentPart(Lenient):
    """A piece of a message or of the output of a tool: text, or an image inside the body."""

    type: Literal["input_text", "output_text", "refusal", "input_image"]
    text: str | None = None
    refusal: str | None = None
    image_url: DataUrl | None = None
    detail: Literal["auto", "low", "high", "original"] | None = None

    @model_validator(mode="after")
    def _is_filled(self) -> ContentPart:
        if self.type == "input_image" and self.image_url is None:
            raise ValueError("an image must be sent in `image_url` as a `data:` address; this server stores no files")
        if self.type != "input_image" and self._words is None:
            field = "refusal" if self.type == "refusal" else "text"
            raise ValueError(f"a part of type `{self.type}` needs the field `{field}`")
        return self

    @property
    def _words(self) -> str | None:
        return self.refusal if self.type == "refusal" else self.text

    def part(self) -> Part:
        """Returns the part in the form of a chat."""
        if self.image_url is None or self.type != "input_image":
            return Part(type="text", text=self._words)
        # The address is validated already, and reading megabytes twice is expensive.
        image = ImageUrl.model_construct(
            url=self.image_url, detail="high" if self.detail == "original" else self.detail
        )
        return Part(type="image_url", image_url=image)


Parts = Annotated[
    Annotated[list[ContentPart], Items(MAX_PARTS)],
    from_text(lambda text: [{"type": "input_text", "text": text}], str | list[ContentPart]),
]


class FunctionCall(Lenient):
    """A call that the model made earlier."""

    type: Literal["function_call"]
    call_id: str
    name: str
    namespace: str | None = None
    arguments: Arguments

    def fields(self, names: ToolNames) -> dict[str, Any]:
        return _called(self, "function", names.of(self.namespace, self.name), arguments=self.arguments)


class CustomToolCall(Lenient):
    """A call of a tool that takes free text."""

    type: Literal["custom_tool_call"]
    call_id: str
    name: str
    namespace: str | None = None
    input: str

    def fields(self, names: ToolNames) -> dict[str, Any]:
        return _called(self, "custom", names.of(self.namespace, self.name), input=self.input)


class BuiltInCall(Lenient):
    """A call of a built-in tool that clients run themselves. `action` or `operation` has its arguments."""

    type: Literal["local_shell_call", "shell_call", "apply_patch_call"]
    call_id: str
    action: dict[str, Any] | None = None
    operation: dict[str, Any] | None = None

    def fields(self, _names: ToolNames) -> dict[str, Any]:
        """Returns the fields of the message in a chat: for the model, the tool is a function."""
        arguments = json.dumps(self.action or self.operation or {}, ensure_ascii=False)
        return _called(self, "function", self.type.removesuffix("_call"), arguments=arguments)


class BuiltInOutput(Lenient):
    """Output of a built-in tool: text, or the output of each shell command. That of `local_shell` has only `id`."""

    type: Literal["local_shell_call_output", "shell_call_output", "apply_patch_call_output"]
    call_id: Annotated[str, Field(validation_alias=AliasChoices("call_id", "id"))]
    output: str | Annotated[list[dict[str, Any]], Items(MAX_PARTS)] | None = None
    status: str | None = None

    def fields(self, _names: ToolNames) -> dict[str, Any]:
        output = self.output if isinstance(self.output, str) else json.dumps(self.output or [], ensure_ascii=False)
        text = output if self.output else self.status or ""
        return {"role": "tool", "tool_call_id": self.call_id, "content": [Part(type="text", text=text)]}


class CallOutput(Lenient):
    """Output of a tool: text, and images, which in a chat belong to the next turn of the user."""

    type: Literal["function_call_output", "custom_tool_call_output"]
    call_id: str
    output: Parts

    @property
    def images(self) -> list[Part]:
        """Images, as parts of a message in a chat."""
        return [part.part() for part in self.output if part.type == "input_image"]

    def fields(self, _names: ToolNames) -> dict[str, Any]:
        """Returns the fields of the message in a chat, with the text alone."""
        texts = [part.part() for part in self.output if part.type != "input_image"]
        return {"role": "tool", "tool_call_id": self.call_id, "content": texts}


Served = Literal[
    "web_search_call",
    "file_search_call",
    "code_interpreter_call",
    "image_generation_call",
    "tool_search_call",
    "tool_search_output",
    "mcp_call",
    "mcp_list_tools",
    "mcp_approval_request",
    "mcp_approval_response",
]
"""Types of items for tools that a server runs."""


class ServedItem(Lenient):
    """Call or result of a tool that another server ran in an earlier turn; ignored."""

    type: Served

    def fields(self, _names: ToolNames) -> None:
        """Returns None: the item is no message."""


def _called(item: FunctionCall | CustomToolCall | BuiltInCall, kind: str, name: str, **members: str) -> dict[str, Any]:
    call = {"id": item.call_id, "type": kind, kind: {"name": name} | members}
    return {"role": "assistant", "tool_calls": [call]}


class InputMessage(Lenient):
    """One turn. `content` is a string or a list of parts."""

    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: Parts

    def fields(self, _names: ToolNames) -> dict[str, Any]:
        """Returns the fields of the message in a chat."""
        return {"role": self.role, "content": [part.part() for part in self.content]}


class ReasoningItem(Lenient):
    """Reasoning of an earlier turn, which is ignored."""

    type: Literal["reasoning"]

    def fields(self, _names: ToolNames) -> None:
        """Returns None: the item is no message."""


def _kind(item: Any) -> str | None:
    """Returns the tag of an item."""
    name = type_of(item)
    if name is None and isinstance(item, dict) and "role" in item:
        name = "message"
    return TAGS.get(name) if isinstance(name, str) else None


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

TAGS = {
    name: tag.tag
    for model, tag in map(get_args, get_args(get_args(Item)[0]))
    for name in get_args(model.model_fields["type"].annotation)
}
"""Tag of each type of items."""


def messages(instructions: str | None, items: Sequence[Item], names: ToolNames) -> list[Message]:
    """Returns all items as messages of a chat: calls join the turn of the assistant that made them.

    `names` are the names of tools for the model. Raises INVALID_REQUEST.
    """
    turns: list[tuple[str, dict[str, Any]]] = []
    if instructions:
        turns.append(("instructions", {"role": "system", "content": [Part(type="text", text=instructions)]}))
    for place, message_fields in _messages_of(items, names):
        fields = {name: value for name, value in _message(place, message_fields) if value is not None}
        before = turns[-1][1] if turns else {}
        if "tool_calls" in fields and before.get("role") == fields["role"]:
            for name in fields.keys() & {"content", "tool_calls"}:
                before.setdefault(name, []).extend(fields[name])
        else:
            turns.append((place, fields))
    return [_message(place, fields) for place, fields in turns]


def _messages_of(items: Sequence[Item], names: ToolNames) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields path and fields of each message. Images from tools become a turn of the user after the last output."""
    for _, group in groupby(enumerate(items), lambda placed: isinstance(placed[1], CallOutput)):
        images: list[Part] = []
        for index, item in group:
            place = f"input[{index}]"
            if (fields := item.fields(names)) is not None:
                yield place, fields
            images += item.images if isinstance(item, CallOutput) else ()
        if images:
            yield place, {"role": "user", "content": images}


def _message(place: str, fields: dict[str, Any]) -> Message:
    try:
        return Message.model_validate(fields)
    except ValidationError as error:
        cause = explain(error, fields)
        # The field of the chat's message does not exist on this wire, and the sentence is clear without it.
        reason = cause.message.removeprefix(f"`{cause.param}`: ")
        raise INVALID_REQUEST(f"`{place}`: {reason}", param=place) from None
