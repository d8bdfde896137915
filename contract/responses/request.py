"""Bodies of POST /responses, and their conversion to chat requests. Limits are those of chat, where chat has them.

Fields of OpenAI's schema that depend on storage on the server are refused: an answer without it would be wrong.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import chain
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr, ValidationInfo, field_validator, model_validator

from contract.base import Items, Lenient, from_text
from contract.body import validated
from contract.catalog.chat import ReasoningEffort
from contract.chat.request import ChatRequest
from contract.chat.sampling import Temperature, TokenLimit, TopLogprobs, TopP
from contract.chat.tools import MAX_TOOLS, BuiltInTool
from contract.errors import INVALID_REQUEST
from contract.limits import MAX_IMAGES, MAX_MESSAGES, MIB
from contract.responses.input import CallOutput, InputMessage, Item, ServedItem, messages
from contract.responses.tools import (
    ClientTool,
    OfferedTool,
    PlacedTool,
    TextConfig,
    ToolChoice,
    ToolNames,
    here,
    placed_tools,
    translate_errors,
)

MAX_ECHO_BYTES = MIB
"""Bytes of `instructions`, `tools`, `text` and the like as JSON: a stream repeats them in three events."""
MAX_METADATA = 16
MAX_METADATA_KEY_CHARS = 64
MAX_METADATA_CHARS = 512
MAX_LABEL_CHARS = 512
"""Characters of `user`, `safety_identifier` and `prompt_cache_key`."""
MAX_INCLUDES = 32

LOGPROBS = "message.output_text.logprobs"
"""The only member of `include` with an effect."""

NOT_KEPT = "this server stores nothing between requests; send the whole conversation in `input`"
REFUSED = {
    "previous_response_id": NOT_KEPT,
    "conversation": NOT_KEPT,
    "prompt": NOT_KEPT,
    "background": "this server stores no answers, so it generates none in the background; wait for it or stream it",
    "moderation": "this server runs no moderation model",
}
"""Fields that request a service that this server lacks, and the sentence for each. `background` may be false."""

Label = Annotated[str, Field(max_length=MAX_LABEL_CHARS)]


class ReasoningConfig(Lenient):
    """Amount of reasoning. The reply contains all of the reasoning, and no summary of it."""

    effort: ReasoningEffort | None = None


class ResponsesRequest(Lenient):
    """A body of POST /responses. `null` is the same as leaving a field out."""

    model: str
    input: Annotated[
        Annotated[list[Item], Items(MAX_MESSAGES, least=1)],
        from_text(lambda text: [{"role": "user", "content": text}], str | list[Item]),
    ]
    instructions: str | None = None
    max_output_tokens: TokenLimit | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    stream: bool | None = None
    tools: Annotated[list[OfferedTool], Items(MAX_TOOLS)] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    text: TextConfig | None = None
    reasoning: ReasoningConfig | None = None
    include: Annotated[list[Label], Items(MAX_INCLUDES)] | None = None
    top_logprobs: TopLogprobs | None = None
    truncation: Literal["auto", "disabled"] | None = None
    metadata: (
        Annotated[
            dict[
                Annotated[str, Field(max_length=MAX_METADATA_KEY_CHARS)],
                Annotated[str, Field(max_length=MAX_METADATA_CHARS)],
            ],
            Items(MAX_METADATA),
        ]
        | None
    ) = None
    user: Label | None = None
    safety_identifier: Label | None = None
    prompt_cache_key: Label | None = None
    service_tier: Label | None = None
    store: bool | None = None
    background: bool | None = None
    previous_response_id: Any = None
    conversation: Any = None
    prompt: Any = None
    moderation: Any = None

    _chat: ChatRequest = PrivateAttr()
    _names: ToolNames = PrivateAttr()
    _places: list[str] = PrivateAttr()

    @field_validator(*REFUSED)
    @classmethod
    def _is_left_out(cls, value: Any, info: ValidationInfo) -> Any:
        name = str(info.field_name)
        if value is not None and (name, value) != ("background", False):
            raise ValueError(REFUSED[name])
        return value

    @model_validator(mode="after")
    def _fits_chat(self) -> ResponsesRequest:
        size = len(json.dumps(self.echo(), ensure_ascii=False).encode())
        if size > MAX_ECHO_BYTES:
            raise INVALID_REQUEST(
                f"the fields that a reply repeats, such as `instructions`, `tools` and `text`, have {size} bytes as "
                f"JSON; at most {MAX_ECHO_BYTES} are allowed; put longer texts into `input`"
            )
        if self._images() > MAX_IMAGES:
            raise INVALID_REQUEST(
                f"`input` contains more than {MAX_IMAGES} images; at most {MAX_IMAGES} are allowed", param="input"
            )
        tools = list(placed_tools(self.tools or ()))
        if len(tools) > MAX_TOOLS:
            raise INVALID_REQUEST(
                f"`tools` has {len(tools)} tools, including those of namespaces; at most {MAX_TOOLS} are allowed",
                param="tools",
            )
        self._places = [placed.place for placed in tools]
        self._names = ToolNames(
            (placed.namespace, placed.tool.name) for placed in tools if isinstance(placed.tool, ClientTool)
        )
        with translate_errors(self._places):
            self._chat = validated(ChatRequest, self._fields(tools))
        return self

    @property
    def chat(self) -> ChatRequest:
        return self._chat

    @property
    def names(self) -> ToolNames:
        """Names of the tools for the model."""
        return self._names

    @property
    def places(self) -> list[str]:
        """Paths in this body of the tools of the chat."""
        return self._places

    @property
    def left_out(self) -> list[str]:
        """Paths of what is not passed to the model: tools of other servers, and items of their calls."""
        items = [f"input[{index}]" for index, item in enumerate(self.input) if isinstance(item, ServedItem)]
        return items + [here(place, self._places) for place in self.chat.left_out]

    @property
    def wants_logprobs(self) -> bool:
        return LOGPROBS in (self.include or ()) or bool(self.top_logprobs)

    def echo(self) -> dict[str, Any]:
        """Returns the fields of the body that every response repeats."""
        choice = self.tool_choice or "auto"
        return {
            "instructions": self.instructions,
            "max_output_tokens": self.max_output_tokens,
            "metadata": self.metadata or {},
            "parallel_tool_calls": self.parallel_tool_calls is not False,
            "prompt_cache_key": self.prompt_cache_key,
            "reasoning": {"effort": self.reasoning.effort if self.reasoning else None, "summary": None},
            "safety_identifier": self.safety_identifier,
            "temperature": self.temperature,
            "text": {"format": self.text.format.echo() if self.text and self.text.format else {"type": "text"}},
            "tool_choice": choice if isinstance(choice, str) else choice.model_dump(exclude_none=True),
            "tools": [tool.echo() for tool in self.tools or () if not isinstance(tool, BuiltInTool)],
            "top_logprobs": self.top_logprobs or 0,
            "top_p": self.top_p,
            "truncation": self.truncation or "auto",
            "user": self.user,
        }

    def _images(self) -> int:
        contents = (item.content for item in self.input if isinstance(item, InputMessage))
        outputs = (item.output for item in self.input if isinstance(item, CallOutput))
        return sum(part.type == "input_image" for parts in chain(contents, outputs) for part in parts)

    def _fields(self, tools: Sequence[PlacedTool]) -> dict[str, Any]:
        """Returns the fields of the chat request, without those that are absent here."""
        choice = self.tool_choice
        form = self.text.format if self.text else None
        fields: dict[str, Any] = {
            "messages": messages(self.instructions, self.input, self._names),
            "max_completion_tokens": self.max_output_tokens,
            "tools": self._tools(tools) or None,
            "tool_choice": choice if isinstance(choice, str | None) else choice.chat(self._names),
            "response_format": form.chat() if form else None,
            "reasoning_effort": self.reasoning.effort if self.reasoning else None,
            "stream_options": {"include_usage": True} if self.stream else None,
        }
        fields |= {name: getattr(self, name) for name in COPIED}
        if self.wants_logprobs:
            fields |= {"logprobs": True, "top_logprobs": self.top_logprobs or 0}
        return fields

    def _tools(self, tools: Sequence[PlacedTool]) -> list[dict[str, Any]]:
        return [
            placed.tool.chat(self._names.of(placed.namespace, placed.tool.name))
            if isinstance(placed.tool, ClientTool)
            else {"type": placed.tool.type}
            for placed in tools
        ]


COPIED = ("model", "temperature", "top_p", "stream", "parallel_tool_calls")
"""Fields that have the same name and meaning on both wires."""
