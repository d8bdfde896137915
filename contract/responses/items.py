"""Calls of tools that an earlier turn made, and what came of them.

FunctionCall, CustomToolCall, CallOutput     of tools that clients describe
BuiltInCall, BuiltInOutput                   of tools that OpenAI's API brings along and clients run: functions here
ServedItem                                   of tools that OpenAI's servers run: passed over, and the reply says so
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BeforeValidator, Field, field_validator, model_validator

from contract.base import Items, Lenient
from contract.chat.request import Part
from contract.chat.tools import Id, Name
from contract.images import ImageUrl, decoded_bytes
from contract.limits import MAX_PARTS
from contract.responses.names import ToolNames


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
            raise ValueError("an image must be sent in `image_url` as a `data:` address; this server stores no files")
        if self.type != "input_image" and self._words is None:
            field = "refusal" if self.type == "refusal" else "text"
            raise ValueError(f"a part of type `{self.type}` needs the field `{field}`")
        return self

    @property
    def _words(self) -> str | None:
        return self.refusal if self.type == "refusal" else self.text

    def part(self) -> Part:
        """The same as a part of a chat's message."""
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


class FunctionCall(Lenient):
    """A call that the model made earlier. `arguments` is a JSON object as text."""

    type: Literal["function_call"]
    call_id: Id
    name: Name
    namespace: str | None = None
    arguments: str

    def fields(self, names: ToolNames) -> dict[str, Any]:
        function = {"name": names.of(self.namespace, self.name), "arguments": self.arguments}
        return _called({"id": self.call_id, "type": "function", "function": function})


class CustomToolCall(Lenient):
    """A call of a tool that takes free text."""

    type: Literal["custom_tool_call"]
    call_id: Id
    name: Name
    namespace: str | None = None
    input: str

    def fields(self, names: ToolNames) -> dict[str, Any]:
        custom = {"name": names.of(self.namespace, self.name), "input": self.input}
        return _called({"id": self.call_id, "type": "custom", "custom": custom})


class BuiltInCall(Lenient):
    """A call of a built-in tool that clients run themselves. `action` or `operation` is what it was called with."""

    type: Literal["local_shell_call", "shell_call", "apply_patch_call"]
    call_id: Id
    action: dict[str, Any] | None = None
    operation: dict[str, Any] | None = None

    def fields(self, _names: ToolNames) -> dict[str, Any]:
        """The fields of the chat's message: the tool is a function to the model."""
        arguments = json.dumps(self.action or self.operation or {}, ensure_ascii=False)
        function = {"name": self.type.removesuffix("_call"), "arguments": arguments}
        return _called({"id": self.call_id, "type": "function", "function": function})


class BuiltInOutput(Lenient):
    """What such a tool answered: text, or what each command of a shell printed. That of `local_shell` has only `id`."""

    type: Literal["local_shell_call_output", "shell_call_output", "apply_patch_call_output"]
    call_id: Annotated[Id, Field(validation_alias=AliasChoices("call_id", "id"))]
    output: str | Annotated[list[dict[str, Any]], Items(MAX_PARTS)] | None = None
    status: str | None = None

    def fields(self, _names: ToolNames) -> dict[str, Any]:
        output = self.output if isinstance(self.output, str) else json.dumps(self.output or [], ensure_ascii=False)
        text = output if self.output else self.status or ""
        return {"role": "tool", "tool_call_id": self.call_id, "content": [Part(type="text", text=text)]}


class CallOutput(Lenient):
    """What a tool answered: text, and images, which a chat has in the turn of the user that follows."""

    type: Literal["function_call_output", "custom_tool_call_output"]
    call_id: Id
    output: Parts

    @property
    def images(self) -> list[Part]:
        """The images as parts of a chat's message."""
        return [part.part() for part in self.output if part.type == "input_image"]

    def fields(self, _names: ToolNames) -> dict[str, Any]:
        """The fields of the chat's message, with the text alone."""
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
"""Items of what a server's own tools did."""


class ServedItem(Lenient):
    """What a tool that another server ran did in an earlier turn; passed over."""

    type: Served

    def fields(self, _names: ToolNames) -> None:
        """No message."""


def _called(call: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [call]}
