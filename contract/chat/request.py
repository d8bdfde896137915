"""Bodies of POST /chat/completions. Limits are those of OpenAI's schema where it has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, WrapValidator, model_validator

from contract.base import Items, Lenient, from_text
from contract.body import count_values
from contract.catalog.chat import ReasoningEffort
from contract.chat import sampling, schemas
from contract.chat.schemas import ResponseFormat, StructuredOutputs
from contract.chat.tools import (
    MAX_TOOLS,
    AllowedChoice,
    AnyCall,
    AnyTool,
    BuiltInTool,
    CustomTool,
    NamedCustomTool,
    NamedTool,
    Tool,
    ToolCall,
    ToolChoice,
    named,
)
from contract.errors import INVALID_REQUEST, ApiError
from contract.images import ImageUrl
from contract.limits import JSON_VALUES, MAX_IMAGES, MAX_MESSAGES, MAX_PARTS, MAX_TOOL_CALLS, most_with_logprobs


def or_text(parts: Any) -> WrapValidator:
    """Returns a validator of `parts`, a type of lists, that takes a text as a list of one text part."""
    return from_text(lambda text: [{"type": "text", "text": text}], str | parts)


class Part(Lenient):
    """A piece of a message: text, an image, or a refusal of the assistant."""

    type: Literal["text", "refusal", "image_url"]
    text: str | None = None
    refusal: str | None = None
    image_url: Annotated[ImageUrl | None, from_text(lambda url: {"url": url}, str | ImageUrl | None)] = None

    @model_validator(mode="after")
    def _is_filled(self) -> Part:
        if getattr(self, self.type) is None:
            raise ValueError(f"a part of type `{self.type}` needs the field `{self.type}`")
        return self

    @property
    def words(self) -> str | None:
        """Text of the part; None for an image."""
        return {"text": self.text, "refusal": self.refusal}.get(self.type)


class Message(Lenient):
    """One turn. `content` is a string or a list of parts. Only the assistant has a `refusal`."""

    role: Annotated[
        Literal["system", "user", "assistant", "tool"],
        BeforeValidator(
            lambda role: "system" if role == "developer" else role,
            json_schema_input_type=Literal["system", "developer", "user", "assistant", "tool"],
        ),
    ]
    content: Annotated[Annotated[list[Part], Items(MAX_PARTS)] | None, or_text(list[Part] | None)] = None
    refusal: str | None = None
    name: str | None = None
    tool_calls: Annotated[list[AnyCall], Items(MAX_TOOL_CALLS)] | None = None
    tool_call_id: str | None = None

    @model_validator(mode="after")
    def _fits_role(self) -> Message:
        # An answer that a limit of tokens cut may have no text yet.
        if self.content is None and self.role != "assistant":
            raise ValueError(f"a message of role `{self.role}` needs `content`")
        if self.role == "tool" and self.tool_call_id is None:
            raise ValueError("a message of role `tool` needs `tool_call_id`")
        if self.role != "user" and self.images:
            raise ValueError(f"images belong in messages of role `user`, not `{self.role}`")
        return self

    @property
    def parts(self) -> list[Part]:
        """All parts, a refusal last."""
        content = self.content or []
        return content if self.refusal is None else [*content, Part(type="refusal", refusal=self.refusal)]

    @property
    def images(self) -> int:
        return sum(part.type == "image_url" for part in self.content or ())


class ChatRequest(Lenient):
    """A body of POST /chat/completions. null is the same as leaving a field out."""

    model: str
    messages: Annotated[list[Message], Items(MAX_MESSAGES, least=1)]
    temperature: sampling.Temperature | None = None
    top_p: sampling.TopP | None = None
    max_tokens: sampling.TokenLimit | None = None
    max_completion_tokens: sampling.TokenLimit | None = None
    stream: bool | None = None
    stream_options: sampling.StreamOptions | None = None
    stop: sampling.Stop = None
    n: sampling.Choices | None = None
    logprobs: bool | None = None
    top_logprobs: sampling.TopLogprobs | None = None
    top_k: sampling.TopK | None = None
    min_p: sampling.MinP | None = None
    repetition_penalty: sampling.RepetitionPenalty | None = None
    reasoning_effort: ReasoningEffort | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    seed: sampling.Seed | None = None
    presence_penalty: sampling.Penalty | None = None
    frequency_penalty: sampling.Penalty | None = None
    tools: Annotated[list[AnyTool], Items(MAX_TOOLS)] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None

    @model_validator(mode="after")
    def _tools_agree(self) -> ChatRequest:
        if self.tools is None and self.tool_choice is None:
            return self
        tools = self._callable.values()
        kinds = {tool.name: tool.type for tool in tools}
        if len(kinds) < len(tools):
            raise ValueError("two tools in `tools` have the same name")
        allowed = kinds if self.tool_choice == "required" else named(self.tool_choice)
        if self.is_tool_forced and not allowed:
            reason = (
                "every tool that it allows is built-in, and this server runs no built-in tools"
                if self.tools
                else "`tools` is empty"
            )
            raise ValueError(f"`tool_choice` requires a tool call, but {reason}")
        for tool in named(self.tool_choice):
            if kinds.get(tool.name) != tool.type:
                raise ValueError(f"`tool_choice` names `{tool.name}` ({tool.type}), which is not in `tools`")
        return self

    @model_validator(mode="after")
    def _fields_agree(self) -> ChatRequest:
        calls = (call for message in self.messages for call in message.tool_calls or ())
        _check_size([call.function.arguments for call in calls if isinstance(call, ToolCall)])
        if self.structured_outputs and self.response_format and self.response_format.type != "text":
            raise ValueError("send either `response_format` or `structured_outputs`, not both")
        if self.structured_outputs and self.offered and self.tool_choice != "none":
            raise ValueError("`structured_outputs` cannot be combined with tool calls; leave `tools` out")
        if self.top_logprobs and not self.logprobs:
            raise ValueError("`top_logprobs` needs `logprobs: true`")
        if sum(message.images for message in self.messages) > MAX_IMAGES:
            raise ValueError(f"`messages` hold more than {MAX_IMAGES} images")
        if self.tools or self.response_format:
            schemas.check(self.compiled_schemas())
        return self

    def texts(self) -> Iterator[str]:
        """Yields every text that may appear in the prompt."""
        for message in self.messages:
            yield (message.name or "") + (message.tool_call_id or "")
            for part in message.parts:
                yield part.words or ""
            for call in message.tool_calls or ():
                function = call.as_function.function
                yield call.id + function.name + function.arguments
        for tool in self.offered.values():
            yield tool.model_dump_json()

    @property
    def budget(self) -> int | None:
        """Most tokens of the answer, reasoning included; None for all that fit the window."""
        limit = self.max_completion_tokens or self.max_tokens
        if limit is None and self.logprobs:
            return most_with_logprobs(self.top_logprobs or 0) // (self.n or 1)
        return limit

    @property
    def is_tool_forced(self) -> bool:
        if isinstance(self.tool_choice, AllowedChoice):
            return self.tool_choice.allowed_tools.mode == "required"
        return self.tool_choice not in (None, "none", "auto")

    @property
    def offered(self) -> dict[int, Tool]:
        """Functions to pass to the engine, by their place in `tools`."""
        tools = self._callable
        if isinstance(self.tool_choice, AllowedChoice):
            names = {tool.name for tool in named(self.tool_choice)}
            tools = {place: tool for place, tool in tools.items() if tool.name in names}
        return {place: tool.as_function for place, tool in tools.items()}

    def compiled_schemas(self) -> dict[str, dict[str, Any]]:
        """Returns the JSON schemas that are compiled to a grammar, by the field that holds each."""
        form, fields = self.response_format, {}
        if form and form.type == "json_schema" and form.json_schema and not self.is_tool_forced:
            fields["response_format"] = form.json_schema.schema_
        if self.tool_choice == "none":
            return fields
        name = self.tool_choice.name if isinstance(self.tool_choice, NamedTool | NamedCustomTool) else None
        for place, tool in self.offered.items():
            function = tool.function
            is_strict = self.is_tool_forced if function.strict is None else function.strict
            if is_strict and name in (None, tool.name):
                fields[f"tools[{place}].function.parameters"] = function.parameters
        return fields

    @property
    def left_out(self) -> list[str]:
        """Paths of the built-in tools, which are not passed to the model."""
        return [f"tools[{place}]" for place, tool in enumerate(self.tools or ()) if isinstance(tool, BuiltInTool)]

    @property
    def custom_tools(self) -> frozenset[str]:
        """Names of the custom tools: the reply shows their calls as custom ones."""
        return frozenset(tool.name for tool in self._callable.values() if tool.type == "custom")

    @property
    def include_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def _callable(self) -> dict[int, Tool | CustomTool]:
        """Tools that the client runs, by their place in `tools`."""
        tools = enumerate(self.tools or ())
        return {place: tool for place, tool in tools if not isinstance(tool, BuiltInTool)}


def _check_size(arguments: Sequence[str]) -> None:
    """Raises INVALID_REQUEST if the arguments of all calls together have more values than a body may have.

    Reading them takes the same time as reading a body, here and in a template.
    """
    is_much = sum(text.count(char) for text in arguments for char in ",:[{") > JSON_VALUES
    remaining_values = JSON_VALUES
    try:
        for text in arguments if is_much else ():
            # Punctuation inside strings, as in code, is no value: most calls need no closer look.
            remaining_values -= count_values(text.encode(), remaining_values, clear=0)
    except ApiError:
        raise INVALID_REQUEST(
            f"the arguments of all tool calls together have more than {JSON_VALUES} keys and values", param="messages"
        ) from None
