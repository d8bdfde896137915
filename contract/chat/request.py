"""POST /chat/completions: what a body may say. Spec 2 (Chat message) and 4.

    ChatRequest                 a validated body
      |- messages: Message      text as parts, images as `data:` addresses
      |- tools, response_format contract.chat.tools
      `- budget                 tokens of the answer, None for all that fit

The limits here are those of OpenAI's schema where it has one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from contract.base import Lenient
from contract.chat import schemas
from contract.chat.tools import MAX_TOOLS, Name, NamedTool, ResponseFormat, Tool
from contract.images import decoded_bytes

MAX_MESSAGES = 2048
MAX_PARTS = 256
"""Parts of one message."""
MAX_IMAGES = 16
"""Images of one request."""
MAX_TOOL_CALLS = 128
"""Tool calls of one assistant message."""
MAX_CHOICES = 8
MAX_TOP_LOGPROBS = 20
MAX_STOPS = 4
MAX_STOP_CHARS = 256
MAX_TEMPERATURE = 2.0
MAX_PENALTY = 2.0
MAX_ID_CHARS = 256
MAX_TOP_K = 1000
"""0 is all tokens, and so is -1, which older clients of vLLM send."""
MAX_REPETITION_PENALTY = 2.0

ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
"""How much a model may think before it answers; `none` is not at all."""


def _listed(value: Any, wrap: Any = lambda text: text) -> Any:
    """A single string where a list may stand."""
    return [wrap(value)] if isinstance(value, str) else value


class ImageUrl(Lenient):
    """An image in the body itself: nothing is ever fetched for a client."""

    url: str
    detail: Literal["auto", "low", "high"] | None = None

    @field_validator("url")
    @classmethod
    def _is_data(cls, url: str) -> str:
        decoded_bytes(url)
        return url


class Part(Lenient):
    """A piece of a message: text or an image."""

    type: Literal["text", "image_url"]
    text: str | None = None
    image_url: Annotated[
        ImageUrl | None,
        BeforeValidator(
            lambda v: {"url": v} if isinstance(v, str) else v, json_schema_input_type=str | ImageUrl | None
        ),
    ] = None

    @model_validator(mode="after")
    def _is_filled(self) -> Part:
        if getattr(self, self.type) is None:
            raise ValueError(f"a part of type `{self.type}` needs the field `{self.type}`")
        return self


class CalledFunction(Lenient):
    """A call that the model made earlier in the conversation. `arguments` is a JSON object as text."""

    name: Name
    arguments: str = "{}"

    @field_validator("arguments")
    @classmethod
    def _is_object(cls, arguments: str) -> str:
        try:
            readable = isinstance(json.loads(arguments or "{}"), dict)
        except (ValueError, RecursionError):
            readable = False
        if not readable:
            raise ValueError("`arguments` of a tool call must be a JSON object written as a string")
        return arguments or "{}"


class ToolCall(Lenient):
    """A call of the assistant, repeated by the client."""

    id: Annotated[str, Field(min_length=1, max_length=MAX_ID_CHARS)]
    type: Literal["function"] = "function"
    function: CalledFunction


class Message(Lenient):
    """One turn. `content` is a string or parts on the wire, and parts here."""

    role: Annotated[
        Literal["system", "user", "assistant", "tool"],
        BeforeValidator(
            lambda role: "system" if role == "developer" else role,
            json_schema_input_type=Literal["system", "developer", "user", "assistant", "tool"],
        ),
    ]
    content: Annotated[
        list[Part] | None,
        Field(max_length=MAX_PARTS),
        BeforeValidator(
            lambda v: _listed(v, lambda text: {"type": "text", "text": text}),
            json_schema_input_type=str | list[Part] | None,
        ),
    ] = None
    name: Annotated[str, Field(max_length=MAX_ID_CHARS)] | None = None
    tool_calls: Annotated[list[ToolCall], Field(max_length=MAX_TOOL_CALLS)] | None = None
    tool_call_id: Annotated[str, Field(min_length=1, max_length=MAX_ID_CHARS)] | None = None

    @model_validator(mode="after")
    def _fits_role(self) -> Message:
        if self.content is None and not (self.role == "assistant" and self.tool_calls):
            raise ValueError(f"a message of role `{self.role}` needs `content`")
        if self.role == "tool" and self.tool_call_id is None:
            raise ValueError("a message of role `tool` needs `tool_call_id`")
        if self.role != "user" and self.images:
            raise ValueError(f"images belong in messages of role `user`, not `{self.role}`")
        return self

    @property
    def images(self) -> int:
        """Number of images in this message."""
        return sum(part.type == "image_url" for part in self.content or ())


class StreamOptions(Lenient):
    """`include_usage` adds a last event with the token counts."""

    include_usage: bool = False


class ChatRequest(Lenient):
    """A body of POST /chat/completions. None is what OpenAI's clients send for "not given"."""

    model: str
    messages: Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES)]
    temperature: Annotated[float, Field(ge=0, le=MAX_TEMPERATURE)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    stop: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARS)]] | None,
        Field(max_length=MAX_STOPS),
        BeforeValidator(_listed, json_schema_input_type=str | list[str] | None),
    ] = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    top_k: Annotated[int, Field(ge=-1, le=MAX_TOP_K)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=MAX_REPETITION_PENALTY)] | None = None
    reasoning_effort: ReasoningEffort | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    presence_penalty: Annotated[float, Field(ge=-MAX_PENALTY, le=MAX_PENALTY)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-MAX_PENALTY, le=MAX_PENALTY)] | None = None
    tools: Annotated[list[Tool], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: str | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None

    @field_validator("tool_choice", mode="before")
    @classmethod
    def _known_choice(cls, choice: Any) -> Any:
        if choice in (None, "none", "auto", "required"):
            return choice
        if isinstance(choice, dict):
            return NamedTool.model_validate(choice)
        raise ValueError("`tool_choice` is `none`, `auto`, `required` or an object that names a function")

    @model_validator(mode="after")
    def _fields_agree(self) -> ChatRequest:
        names = [tool.function.name for tool in self.tools or ()]
        if len(set(names)) < len(names):
            raise ValueError("two functions in `tools` have the same name")
        if self.tool_choice == "required" and not names:
            raise ValueError("`tool_choice` is `required`, but `tools` is empty")
        if isinstance(self.tool_choice, NamedTool) and self.tool_choice.function.name not in names:
            raise ValueError(f"`tool_choice` names `{self.tool_choice.function.name}`, which is not in `tools`")
        if self.top_logprobs and not self.logprobs:
            raise ValueError("`top_logprobs` needs `logprobs: true`")
        if sum(message.images for message in self.messages) > MAX_IMAGES:
            raise ValueError(f"`messages` hold more than {MAX_IMAGES} images")
        schemas.check(self)
        return self

    def texts(self) -> Iterator[str]:
        """Everything that may stand in the prompt."""
        for message in self.messages:
            yield message.name or ""
            for part in message.content or ():
                yield part.text or ""
            for call in message.tool_calls or ():
                yield call.function.name + call.function.arguments
        for tool in self.tools or ():
            yield tool.model_dump_json()

    @property
    def budget(self) -> int | None:
        """Tokens that the answer may take, reasoning included; None for all that fit the window."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def is_tool_forced(self) -> bool:
        """Whether the answer must be a tool call."""
        return self.tool_choice not in (None, "none", "auto")

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with the token counts."""
        return bool(self.stream_options and self.stream_options.include_usage)
