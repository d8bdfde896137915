"""A finished chat answer as a message in Anthropic's schema.

The order of blocks is reasoning, text, calls of tools. Reasoning has no signature, because nothing here checks one.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from contract.chat.engine import ChatBatch, ChatReply
from contract.chat.tools import read_arguments
from contract.chat.usage import reasoning_tokens

StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]


class TextContent(TypedDict):
    """Text of the answer."""

    type: Literal["text"]
    text: str


class ThinkingContent(TypedDict):
    """Reasoning of the model. `signature` is empty."""

    type: Literal["thinking"]
    thinking: str
    signature: str


class ToolUseContent(TypedDict):
    """A call for the client to make."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


class ThinkingTokens(TypedDict):
    """Reasoning tokens among the output tokens."""

    thinking_tokens: int


class MessageUsage(TypedDict):
    """Tokens of the call. The tokens that were read of the prompt are the sum of the first three fields.

    `input_tokens_cut` counts further tokens of the input, which did not fit and were cut from its top.
    """

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    output_tokens_details: NotRequired[ThinkingTokens]
    input_tokens_cut: NotRequired[int]


class MessageReply(TypedDict):
    """A finished message, in Anthropic's schema."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[TextContent | ThinkingContent | ToolUseContent]
    stop_reason: StopReason | None
    stop_sequence: str | None
    usage: MessageUsage


class TokenCount(TypedDict):
    """Tokens of a prompt."""

    input_tokens: int


def message(reply: ChatReply, is_silent: bool = False) -> MessageReply:
    """Returns `reply`, which has one choice, as a message; without content if `is_silent`."""
    (choice,) = reply.body["choices"]
    answer_message, finish_reason = ({}, "length") if is_silent else (choice["message"], choice["finish_reason"])
    content: list[TextContent | ThinkingContent | ToolUseContent] = []
    if thoughts := answer_message.get("reasoning_content"):
        content.append({"type": "thinking", "thinking": thoughts, "signature": ""})
    if text := answer_message.get("content"):
        content.append({"type": "text", "text": text})
    content += [_call(call) for call in answer_message.get("tool_calls") or ()]
    answer = opening(reply.body["id"], reply.body["model"], usage(reply, reasoning_tokens(reply.body["usage"])))
    answer["content"] = content
    has_called = bool(answer_message.get("tool_calls"))
    answer["stop_sequence"] = reply.stop_sequence
    answer["stop_reason"] = stop_reason(finish_reason, reply.stop_sequence, has_called=has_called)
    return answer


def opening(chat_id: str, model: str, spent: MessageUsage) -> MessageReply:
    """Returns a message without content yet."""
    return {
        "id": f"msg_{chat_id.removeprefix('chatcmpl-')}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": spent,
    }


def stop_reason(finish_reason: str | None, stop_sequence: str | None, *, has_called: bool) -> StopReason:
    """Returns the stop reason of an answer. A forced call ends with `stop` in chat; here it is like any other call."""
    if finish_reason == "length":
        return "max_tokens"
    if has_called:
        return "tool_use"
    return "end_turn" if stop_sequence is None else "stop_sequence"


def usage(spent: ChatReply | ChatBatch, thinking: int | None = None) -> MessageUsage:
    """Returns the tokens so far. On this wire, `input_tokens` excludes cached tokens."""
    counts: MessageUsage = {
        "input_tokens": spent.prompt_tokens - spent.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": spent.cached_tokens,
        "output_tokens": spent.completion_tokens,
    }
    if thinking is not None:
        counts["output_tokens_details"] = {"thinking_tokens": thinking}
    if spent.cut_tokens:
        counts["input_tokens_cut"] = spent.cut_tokens
    return counts


def _call(call: dict[str, Any]) -> ToolUseContent:
    function = call["function"]
    return {
        "type": "tool_use",
        "id": call["id"],
        "name": function["name"],
        "input": read_arguments(function["arguments"]),
    }
