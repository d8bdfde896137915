"""Answers of an LLM that a test writes itself, whole or in pieces; and what events of a message add up to."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

from contract.chat.engine import ChatBatch, ChatJob, ChatReply, usage_of
from contract.chat.request import ChatRequest
from contract.events import event
from contract.tokens import Tokenized, TokenizeJob

MODEL = "obedient"


@dataclass(frozen=True)
class Call:
    """A call of a tool. `arguments` is JSON."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Script:
    """One answer."""

    thoughts: str = ""
    text: str = ""
    calls: tuple[Call, ...] = ()
    finish_reason: str = "stop"
    stop_sequence: str | None = None
    prompt_tokens: int = 100
    completion_tokens: int = 20
    cached_tokens: int = 64
    reasoning_tokens: int = 5
    cut_tokens: int = 0

    @property
    def usage(self) -> Any:
        """Of chat."""
        return usage_of(
            self.prompt_tokens,
            self.completion_tokens,
            cached_tokens=self.cached_tokens,
            reasoning_tokens=self.reasoning_tokens,
            cut_tokens=self.cut_tokens,
        )

    def reply(self) -> ChatReply:
        """The whole answer."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text or None, "refusal": None}
        if self.thoughts:
            message["reasoning_content"] = self.thoughts
        if self.calls:
            message["tool_calls"] = [
                {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
                for c in self.calls
            ]
        choice: Any = {"index": 0, "message": message, "logprobs": None, "finish_reason": self.finish_reason}
        body: Any = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": MODEL}
        return ChatReply(body | {"choices": [choice], "usage": self.usage}, *self._counts, self.stop_sequence)

    def batches(self, lengths: Sequence[int] = (3,), per_batch: int = 1) -> Iterator[ChatBatch]:
        """The answer in pieces of these lengths, over and over; so many events come together."""
        chunks = [_chunk({"role": "assistant", "content": ""}), *map(_chunk, self._deltas(lengths))]
        chunks.append(_chunk({}, self.finish_reason))
        for start in range(0, len(chunks), per_batch):
            events = b"".join(event(chunk) for chunk in chunks[start : start + per_batch])
            is_last = start + per_batch >= len(chunks)
            yield ChatBatch(events, *self._counts, self.stop_sequence if is_last else None)
        yield ChatBatch(event(_head() | {"choices": [], "usage": self.usage}), *self._counts, self.stop_sequence)

    def _deltas(self, lengths: Sequence[int]) -> Iterator[dict[str, Any]]:
        yield from ({"reasoning_content": piece} for piece in _cut(self.thoughts, lengths))
        yield from ({"content": piece} for piece in _cut(self.text, lengths))
        for index, call in enumerate(self.calls):
            opening = {"index": index, "id": call.id, "type": "function", "function": {"name": call.name}}
            yield {"tool_calls": [opening]}
            for piece in _cut(call.arguments, lengths):
                yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}

    @property
    def _counts(self) -> tuple[int, int, int, int]:
        return self.prompt_tokens, self.completion_tokens, self.cached_tokens, self.cut_tokens


class ScriptedChat:
    """Answers with its script, and keeps what it was asked."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.asked: list[ChatRequest] = []

    async def complete(self, job: ChatJob) -> ChatReply:
        self.asked.append(job.request)
        return self.script.reply()

    async def stream(self, job: ChatJob) -> AsyncGenerator[ChatBatch, None]:
        self.asked.append(job.request)
        for batch in self.script.batches():
            yield batch

    async def tokenize(self, job: TokenizeJob) -> Tokenized:
        """One token for each message, tool and image."""
        request = job.request
        assert request
        self.asked.append(request)
        images = sum(message.images for message in request.messages)
        return Tokenized(list(range(len(request.messages) + len(request.tools or ()) + images)))


def added_up(sent: bytes) -> dict[str, Any]:
    """The message that the events in `sent` add up to, as a client adds them. Fails where they come in no order."""
    made: dict[str, Any] = {}
    written: dict[int, str] = {}
    opened: list[int] = []
    for framed in sent.decode().split("\n\n")[:-1]:
        name, _, data = framed.partition("\n")
        content = json.loads(data.removeprefix("data: "))
        assert name == f"event: {content['type']}"
        match content["type"]:
            case "message_start":
                assert not made
                made = content["message"]
            case "content_block_start":
                assert not opened
                assert content["index"] == len(made["content"])
                opened.append(content["index"])
                made["content"].append(content["content_block"])
            case "content_block_delta":
                assert opened == [content["index"]]
                _add(made["content"][content["index"]], content["delta"], written, content["index"])
            case "content_block_stop":
                assert opened.pop() == content["index"]
            case "message_delta":
                assert not opened
                made |= content["delta"]
                made["usage"] |= content["usage"]
            case other:
                assert other == "message_stop"
    for index, partial in written.items():
        made["content"][index]["input"] = from_json(partial, allow_partial=True)
    assert content["type"] == "message_stop"
    return made


def _add(block: dict[str, Any], delta: dict[str, Any], written: dict[int, str], index: int) -> None:
    match delta["type"]:
        case "text_delta":
            block["text"] += delta["text"]
        case "thinking_delta":
            block["thinking"] += delta["thinking"]
        case _:
            written[index] = written.get(index, "") + delta["partial_json"]


def _cut(text: str, lengths: Sequence[int]) -> Iterable[str]:
    start, turn = 0, 0
    while start < len(text):
        length = lengths[turn % len(lengths)]
        yield text[start : start + length]
        start, turn = start + length, turn + 1


def _head() -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": MODEL}


def _chunk(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    return _head() | {"choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}]}
