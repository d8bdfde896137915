"""A finished chat answer as a message in Anthropic's schema, and a chat stream as its events.

    message_start
    content_block_start, content_block_delta ..., content_block_stop      for each block, one after the other
    message_delta        stop reason, all tokens
    message_stop

`ping` fills silence; `error` ends a stream that fails. The order of blocks is reasoning, text, calls of tools. A call
is one block, so text and reasoning that come inside it follow after it; white space alone is dropped there.
Reasoning has no signature, because nothing here checks one.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from contract.chat.engine import ChatBatch, ChatReply
from contract.chat.tools import read_arguments
from contract.chat.usage import reasoning_tokens
from contract.errors import ApiError
from contract.wires import contents, error_body, named_event

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


def framed(content: dict[str, Any]) -> bytes:
    """Returns `content` as an event with the name of its type: clients ignore events without a name."""
    return named_event(content["type"], content)


PING = framed({"type": "ping"})


def failed(error: ApiError, request_id: str) -> bytes:
    """Returns the event of an error in a stream that has begun."""
    return framed(error_body(error, request_id))


class MessageEvents:
    """Converter of the batches of one chat stream with one choice to the events of a message of `model`.

    If `is_silent`, the message has no content.
    """

    def __init__(self, model: str, is_silent: bool = False) -> None:
        self._is_silent = is_silent
        self._model = model
        self._last: ChatBatch | None = None
        self._blocks = 0
        self._open: str | None = None
        self._call: int | None = None
        self._pending: list[tuple[str, str]] = []
        self._finish_reason: str | None = "length" if is_silent else None
        self._stop_sequence: str | None = None
        self._reasoning_tokens = 0

    def of(self, batch: ChatBatch) -> bytes:
        """Returns the events that `batch` adds, possibly none."""
        chunks = list(contents(batch.events))
        events = [self._start(chunks, batch)] if self._last is None else []
        self._last = batch
        self._stop_sequence = batch.stop_sequence or self._stop_sequence
        for chunk in chunks:
            events += self._chunk(chunk)
        return b"".join(map(framed, events))

    def end(self) -> Iterator[bytes]:
        """Returns the last events, after the end of the chat stream."""
        events = [*self._say(), *self._close()]
        if self._last is not None:
            reason = stop_reason(self._finish_reason, self._stop_sequence, has_called=self._call is not None)
            delta = {"stop_reason": reason, "stop_sequence": self._stop_sequence}
            spent = usage(self._last, self._reasoning_tokens)
            events += [{"type": "message_delta", "delta": delta, "usage": spent}, {"type": "message_stop"}]
        return map(framed, events)

    def _start(self, chunks: list[dict[str, Any]], batch: ChatBatch) -> dict[str, Any]:
        chat_id = next((chunk["id"] for chunk in chunks), "")
        return {"type": "message_start", "message": opening(chat_id, self._model, usage(batch))}

    def _chunk(self, chunk: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if spent := chunk.get("usage"):
            self._reasoning_tokens = reasoning_tokens(spent)
        for choice in () if self._is_silent else chunk["choices"]:
            delta = choice["delta"]
            pieces = (("thinking", delta.get("reasoning_content")), ("text", delta.get("content")))
            self._pending += [(kind, text) for kind, text in pieces if text]
            if self._call is None:
                yield from self._say()
            for call in delta.get("tool_calls") or ():
                yield from self._call_delta(call)
            self._finish_reason = choice.get("finish_reason") or self._finish_reason

    def _say(self) -> Iterator[dict[str, Any]]:
        """Yields the events for the pending pieces of reasoning and text."""
        for kind, pieces in groupby(self._pending, itemgetter(0)):
            text = "".join(piece for _, piece in pieces)
            if self._call is not None and not text.strip():
                continue  # parsers of calls emit the line breaks between two calls as text
            if self._open != kind:
                yield from self._begin({"type": kind, kind: ""} | ({"signature": ""} if kind == "thinking" else {}))
            yield self._delta({"type": f"{kind}_delta", kind: text})
        self._pending.clear()

    def _call_delta(self, call: dict[str, Any]) -> Iterator[dict[str, Any]]:
        function = call.get("function") or {}
        if self._call != call["index"]:
            yield from self._say()
            self._call = call["index"]
            names = {"id": call.get("id") or "", "name": function.get("name") or ""}
            yield from self._begin({"type": "tool_use", **names, "input": {}})
        if arguments := function.get("arguments"):
            yield self._delta({"type": "input_json_delta", "partial_json": arguments})

    def _begin(self, block: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield from self._close()
        self._open = block["type"]
        self._blocks += 1
        yield {"type": "content_block_start", "index": self._blocks - 1, "content_block": block}

    def _delta(self, delta: dict[str, Any]) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": self._blocks - 1, "delta": delta}

    def _close(self) -> list[dict[str, Any]]:
        if self._open is None:
            return []
        self._open = None
        return [{"type": "content_block_stop", "index": self._blocks - 1}]
