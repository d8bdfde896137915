"""POST /messages and POST /messages/count_tokens: what a body may say.

    MessagesRequest        a validated body
      |- Conversation      what its tokens are counted of
      |    |- messages     contract.messages.blocks
      |    `- tools        contract.messages.request
      `- how to answer

The limits are those of chat, but for `temperature`. A field that asks for a service which nobody does here is refused;
every other field that is not in the schema is ignored.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, Tag, model_validator

from contract.base import Items, Lenient, type_of
from contract.chat.request import as_parts
from contract.chat.sampling import StopSequences, TokenLimit, TopK, TopP
from contract.chat.tools import MAX_TOOLS, BuiltInTool, Name, is_built_in, one_of
from contract.limits import MAX_IMAGES, MAX_MESSAGES, MAX_PARTS
from contract.messages.blocks import Block, ImageBlock, TextBlock, ToolResultBlock


class MessageTool(Lenient):
    """A function that the model may ask the client to call."""

    name: Name
    description: str | None = None
    input_schema: dict[str, Any]
    type: Literal["custom"] | None = None
    strict: bool | None = None


class ServerTool(BuiltInTool):
    """A tool that Anthropic's servers run. The model is not told of it, and the reply says so."""

    name: str | None = None


# Tags are no identifiers, so that the place of an error does not name them.
CLIENT, SERVER = "(a tool)", "(a tool of a server)"


def _kind(tool: Any) -> str | None:
    """Which of the two a tool is; what has no type is one of the client's."""
    kind = type_of(tool)
    if is_built_in(kind):
        return SERVER
    return CLIENT if kind in (None, "custom") else None


OfferedTool = Annotated[
    Annotated[MessageTool, Tag(CLIENT)] | Annotated[ServerTool, Tag(SERVER)],
    one_of(
        "a tool is one of type `custom`, with `input_schema`, or one that Anthropic's servers run, such as "
        "`web_search_20250305`; describe one that you run yourself as `custom`",
        _kind,
    ),
]


class ToolChoice(Lenient):
    """Whether the model calls a tool: as it likes, any, the one that `name` says, or none."""

    type: Literal["auto", "any", "tool", "none"]
    name: Name | None = None
    disable_parallel_tool_use: bool | None = None

    @model_validator(mode="after")
    def _is_named(self) -> ToolChoice:
        if self.type == "tool" and self.name is None:
            raise ValueError("a `tool_choice` of type `tool` needs the field `name`")
        return self


class AnswerFormat(Lenient):
    """The JSON schema that the answer follows."""

    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


MIN_THINKING_TOKENS = 1024
NOT_SERVED = {
    "mcp_servers": "the client must call the tools of MCP servers itself",
    "container": "this server runs no code",
}
"""Fields that ask for a service that only Anthropic has, and the sentence for each."""
BLOCKS_OF_ROLE = {
    "system": {"text"},
    "user": {"text", "image", "tool_result"},
    "assistant": {"text", "tool_use", "thinking", "redacted_thinking"},
}


class MessageTurn(Lenient):
    """One turn of the conversation. Those of one role that follow each other are one turn."""

    role: Literal["user", "assistant", "system"]
    content: Annotated[
        Annotated[list[Block], Items(MAX_PARTS)], BeforeValidator(as_parts, json_schema_input_type=str | list[Block])
    ]

    @model_validator(mode="after")
    def _fits_role(self) -> MessageTurn:
        allowed = BLOCKS_OF_ROLE[self.role]
        if other := next((block.type for block in self.content if block.type not in allowed), None):
            raise ValueError(f"a block of type `{other}` does not belong in a message of role `{self.role}`")
        if not self.content:
            raise ValueError("`content` is empty")
        return self

    @property
    def images(self) -> int:
        """Number of images in this turn, those in results of tools included."""
        count = 0
        for block in self.content:
            parts = block.content if isinstance(block, ToolResultBlock) else [block]
            count += sum(isinstance(part, ImageBlock) for part in parts)
        return count


class Thinking(Lenient):
    """Whether the model thinks before it answers. `budget_tokens` is checked and does not bound it: `effort` does."""

    type: Literal["enabled", "disabled", "adaptive", "between_tools"]
    budget_tokens: Annotated[int, Field(ge=MIN_THINKING_TOKENS)] | None = None

    @model_validator(mode="after")
    def _has_budget(self) -> Thinking:
        if self.type == "enabled" and self.budget_tokens is None:
            raise ValueError("`thinking` of type `enabled` needs the field `budget_tokens`")
        return self


class OutputConfig(Lenient):
    """How much the model thinks, and which form its answer has."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: AnswerFormat | None = None


class Conversation(Lenient):
    """A body of POST /messages/count_tokens: what stands in the prompt."""

    model: str
    messages: Annotated[list[MessageTurn], Items(MAX_MESSAGES, least=1)]
    system: Annotated[
        Annotated[list[TextBlock], Items(MAX_PARTS)] | None,
        BeforeValidator(as_parts, json_schema_input_type=str | list[TextBlock] | None),
    ] = None
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


class MessagesRequest(Conversation):
    """A body of POST /messages."""

    max_tokens: TokenLimit
    temperature: Annotated[float, Field(ge=0, le=1)] | None = None
    top_p: TopP | None = None
    top_k: TopK | None = None
    stop_sequences: StopSequences | None = None
    stream: bool | None = None

    @model_validator(mode="after")
    def _thinks_within_the_answer(self) -> MessagesRequest:
        if self.thinking and (self.thinking.budget_tokens or 0) >= self.max_tokens:
            raise ValueError("`thinking.budget_tokens` must be less than `max_tokens`, which includes the reasoning")
        return self
