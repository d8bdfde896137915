"""Bodies of POST /messages and POST /messages/count_tokens.

    MessagesRequest        a validated body
      |- Conversation      the part of which tokens are counted
      |    |- messages     turns of blocks: text, images, calls of tools and their results, reasoning
      |    `- tools        functions, or tools of Anthropic's servers
      `- settings of the answer

The limits are those of chat, except for `temperature`. A field that requests a service which this server lacks is
refused; every other unknown field is ignored.
"""

from __future__ import annotations

import re
from itertools import chain
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, Tag, field_validator, model_validator

from contract.base import Items, Lenient, needs, type_of
from contract.chat.request import or_text
from contract.chat.sampling import StopSequences, TopP
from contract.chat.tools import MAX_TOOLS, BuiltInTool, Name, as_text, is_built_in, one_of
from contract.images import decoded_bytes
from contract.limits import MAX_IMAGES, MAX_MESSAGES, MAX_PARTS


class TextBlock(Lenient):
    """Text."""

    type: Literal["text"]
    text: str


class Base64Source(Lenient):
    """An image inside the body: the server fetches nothing for a client."""

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
    """A call that the model made earlier in the conversation; `input` is read as JSON text."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: Annotated[str, BeforeValidator(as_text, json_schema_input_type=dict[str, Any])]


class ThinkingBlock(Lenient):
    """Reasoning of an earlier answer. It is accepted, and not shown to the model again."""

    type: Literal["thinking"]
    thinking: str


class UnreadBlock(Lenient):
    """Part of an earlier answer that is accepted, and not shown to the model.

    It is encrypted reasoning, or a call of a tool that a server ran; a result of one is accepted likewise.
    """

    type: Literal["redacted_thinking", "server_tool_use"]


SERVED = re.compile("(server|mcp)_tool_use|[a-z_]+_tool_result")
"""Types of the calls and results of tools that servers ran."""


def _only(*types: str) -> BeforeValidator:
    """Returns a validator that refuses blocks of other types, by name."""

    def check(block: Any) -> Any:
        kind = type_of(block)
        if "server_tool_use" in types and isinstance(kind, str) and SERVED.fullmatch(kind):
            return {"type": "server_tool_use"}
        if kind not in types:
            came = f"of type `{kind[:64]}`" if isinstance(kind, str) else "without a type"
            raise ValueError(f"a block {came} is not supported; supported are {', '.join(types)}")
        return block

    return BeforeValidator(check)


ResultPart = Annotated[TextBlock | ImageBlock, Field(discriminator="type"), _only("text", "image")]


class ToolResultBlock(Lenient):
    """Result of a tool. With `is_error` the tool failed, and `content` gives the reason."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: Annotated[Annotated[list[ResultPart], Items(MAX_PARTS)], or_text(list[ResultPart])] = []
    is_error: bool | None = None


Block = Annotated[
    TextBlock | ImageBlock | ToolUseBlock | ToolResultBlock | ThinkingBlock | UnreadBlock,
    Field(discriminator="type"),
    _only("text", "image", "tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use"),
]


class MessageTool(Lenient):
    """A function that the model may ask the client to call."""

    name: Name
    description: str | None = None
    input_schema: dict[str, Any]
    type: Literal["custom"] | None = None
    strict: bool | None = None


class ServerTool(BuiltInTool):
    """A tool that Anthropic's servers run. It is not passed to the model, and the reply says so."""

    name: str | None = None


CLIENT, SERVER = "(a tool)", "(a tool of a server)"


def _kind(tool: Any) -> str | None:
    """Returns the tag of a tool. A tool without a type is one of the client."""
    kind = type_of(tool)
    return SERVER if is_built_in(kind) else CLIENT if kind in (None, "custom") else None


OfferedTool = Annotated[
    Annotated[MessageTool, Tag(CLIENT)] | Annotated[ServerTool, Tag(SERVER)],
    one_of(
        "a tool is one of type `custom`, with `input_schema`, or one that Anthropic's servers run, such as "
        "`web_search_20250305`; describe one that you run yourself as `custom`",
        _kind,
    ),
]


class ToolChoice(Lenient):
    """Choice of tools: left to the model, any, the tool `name`, or none."""

    type: Literal["auto", "any", "tool", "none"]
    name: Name | None = None
    disable_parallel_tool_use: bool | None = None

    _is_named = needs("tool", "name", fault="a `tool_choice` of type `tool` needs the field `name`")


class AnswerFormat(Lenient):
    """JSON schema that the answer follows."""

    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


MIN_THINKING_TOKENS = 1024
NOT_SERVED = {
    "mcp_servers": "the client must call the tools of MCP servers itself",
    "container": "this server runs no code",
}
"""Fields that request a service that only Anthropic has, and the sentence for each."""
BLOCKS_OF_ROLE = {
    "system": {"text"},
    "user": {"text", "image", "tool_result"},
    "assistant": {"text", "tool_use", "thinking", "redacted_thinking", "server_tool_use"},
}


class MessageTurn(Lenient):
    """One turn of the conversation. Successive turns of one role count as one."""

    role: Literal["user", "assistant", "system"]
    content: Annotated[Annotated[list[Block], Items(MAX_PARTS)], or_text(list[Block])]

    @model_validator(mode="after")
    def _fits_role(self) -> MessageTurn:
        allowed = BLOCKS_OF_ROLE[self.role]
        if other := next((block.type for block in self.content if block.type not in allowed), None):
            raise ValueError(f"a block of type `{other}` does not belong in a message of role `{self.role}`")
        if not self.content and self.role != "assistant":
            raise ValueError("`content` is empty")
        return self

    @property
    def images(self) -> int:
        """Number of images in this turn, including results of tools."""
        parts = (block.content if isinstance(block, ToolResultBlock) else [block] for block in self.content)
        return sum(isinstance(part, ImageBlock) for part in chain.from_iterable(parts))


class Thinking(Lenient):
    """Switch for reasoning before the answer. `budget_tokens` is checked without effect: `effort` sets the amount."""

    type: Literal["enabled", "disabled", "adaptive", "between_tools"]
    budget_tokens: Annotated[int, Field(ge=MIN_THINKING_TOKENS)] | None = None

    _has_budget = needs(
        "enabled", "budget_tokens", fault="`thinking` of type `enabled` needs the field `budget_tokens`"
    )


class OutputConfig(Lenient):
    """Amount of reasoning, and form of the answer."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: AnswerFormat | None = None


class Conversation(Lenient):
    """A body of POST /messages/count_tokens: everything that enters the prompt."""

    model: str
    messages: Annotated[list[MessageTurn], Items(MAX_MESSAGES, least=1)]
    system: Annotated[Annotated[list[TextBlock], Items(MAX_PARTS)] | None, or_text(list[TextBlock] | None)] = None
    tools: Annotated[list[OfferedTool], Items(MAX_TOOLS)] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None

    @model_validator(mode="before")
    @classmethod
    def _is_served(cls, body: Any) -> Any:
        for name, sentence in NOT_SERVED.items() if isinstance(body, dict) else ():
            if body.get(name):
                raise ValueError(f"`{name}` is not supported: {sentence}")
        return body

    @model_validator(mode="after")
    def _fields_agree(self) -> Conversation:
        if self.messages[-1].role == "assistant":
            raise ValueError(
                "`messages` ends with a turn of the assistant; this server does not continue such an answer"
            )
        if sum(turn.images for turn in self.messages) > MAX_IMAGES:
            raise ValueError(f"`messages` contain more than {MAX_IMAGES} images; at most {MAX_IMAGES} are allowed")
        names = [tool.name for tool in self.tools or () if isinstance(tool, MessageTool)]
        served = [tool.name for tool in self.tools or () if isinstance(tool, ServerTool)]
        if len(set(names)) < len(names):
            raise ValueError("two tools in `tools` have the same name")
        if (choice := self.tool_choice) and choice.type == "any" and not names:
            lacking = "`tools` has only server tools, and this server runs none" if served else "`tools` is empty"
            raise ValueError(f"`tool_choice` is `any`, but {lacking}")
        if choice and choice.type == "tool" and choice.name not in names:
            lacking = "is a server tool, and this server runs none" if choice.name in served else "is not in `tools`"
            raise ValueError(f"`tool_choice` names `{choice.name}`, which {lacking}")
        return self

    @property
    def left_out(self) -> list[str]:
        """Paths of what is not passed to the model: tools of servers, and what these did in earlier turns."""
        tools = [f"tools[{place}]" for place, tool in enumerate(self.tools or ()) if isinstance(tool, ServerTool)]
        return tools + [
            f"messages[{turn_place}].content[{place}]"
            for turn_place, turn in enumerate(self.messages)
            for place, block in enumerate(turn.content)
            if block.type == "server_tool_use"
        ]


class MessagesRequest(Conversation):
    """A body of POST /messages. With `max_tokens` 0 the prompt is read into the cache, and the answer is empty."""

    max_tokens: Annotated[int, Field(ge=0)]
    temperature: Annotated[float, Field(ge=0, le=1)] | None = None
    top_p: TopP | None = None
    top_k: Annotated[int, Field(ge=0)] | None = None
    stop_sequences: StopSequences | None = None
    stream: bool | None = None

    @model_validator(mode="after")
    def _thinks_within_the_answer(self) -> MessagesRequest:
        if self.thinking and (self.thinking.budget_tokens or -1) >= self.max_tokens:
            raise ValueError("`thinking.budget_tokens` must be less than `max_tokens`, which includes the reasoning")
        return self
