"""Answers of an LLM that a test writes itself, whole or in pieces, and an engine that gives them."""

from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from contract.chat.engine import ChatBatch, ChatJob, ChatReply
from contract.chat.request import ChatRequest
from contract.chat.usage import usage_of
from contract.tokens import Tokenized, TokenizeJob
from contract.wires import event

MODEL = "obedient"

Delta = dict[str, Any]
"""What one event of a chat stream adds."""


@dataclass(frozen=True)
class Call:
    """A call of a tool. `given` is JSON, or the text of a custom tool."""

    id: str
    name: str
    given: str
    type: Literal["function", "custom"] = "function"

    def whole(self) -> dict[str, Any]:
        """As in an answer that is there as a whole."""
        return {"id": self.id, "type": self.type, self.type: {"name": self.name, self._key: self.given}}

    def opening(self, index: int) -> Delta:
        """All but what it is given, which is empty yet."""
        opened = {"index": index, "id": self.id, "type": self.type, self.type: {"name": self.name, self._key: ""}}
        return {"tool_calls": [opened]}

    def piece(self, index: int, text: str) -> Delta:
        """A piece of what it is given."""
        return {"tool_calls": [{"index": index, self.type: {self._key: text}}]}

    @property
    def _key(self) -> str:
        return "input" if self.type == "custom" else "arguments"


@dataclass(frozen=True)
class Script:
    """One answer. With `has_logprobs` each character of `text` is a token."""

    thoughts: str = ""
    text: str = ""
    calls: tuple[Call, ...] = ()
    finish_reason: str = "stop"
    stop_sequence: str | None = None
    has_logprobs: bool = False
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
            message["tool_calls"] = [call.whole() for call in self.calls]
        choice = {"index": 0, "message": message, "logprobs": self._logprobs(self.text)}
        choice["finish_reason"] = self.finish_reason
        body: Any = _head("chat.completion") | {"choices": [choice], "usage": self.usage}
        counts = self.prompt_tokens, self.completion_tokens, self.cached_tokens, self.cut_tokens
        return ChatReply(body, *counts, self.stop_sequence)

    def deltas(self, lengths: Sequence[int] = (3,)) -> Iterator[Delta]:
        """The answer in pieces of so many characters, over and over: thoughts, text, one call after the other."""
        yield from ({"reasoning_content": piece} for piece in cut(self.thoughts, lengths))
        yield from ({"content": piece} for piece in cut(self.text, lengths))
        for index, call in enumerate(self.calls):
            yield call.opening(index)
            yield from (call.piece(index, text) for text in cut(call.given, lengths))

    def batches(self, deltas: Iterable[Delta] | None = None, per_batch: int = 1) -> Iterator[ChatBatch]:
        """The answer as `deltas`, or in pieces of 3; so many events come together. Each costs a token, up to all."""
        chunks = [self._chunk({"role": "assistant", "content": ""})]
        chunks += [self._chunk(delta) for delta in (self.deltas() if deltas is None else deltas)]
        chunks.append(self._chunk({}, self.finish_reason))
        chunks.append(_head("chat.completion.chunk") | {"choices": [], "usage": self.usage})
        for start in range(0, len(chunks), per_batch):
            end = start + per_batch
            is_over = end >= len(chunks) - 1
            made = self.completion_tokens if is_over else min(end - 1, self.completion_tokens)
            events = b"".join(map(event, chunks[start:end]))
            counts = self.prompt_tokens, made, self.cached_tokens, self.cut_tokens
            yield ChatBatch(events, *counts, self.stop_sequence if is_over else None)

    def _chunk(self, delta: Delta, finish_reason: str | None = None) -> dict[str, Any]:
        logprobs = self._logprobs(delta.get("content") or "")
        choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
        return _head("chat.completion.chunk") | {"choices": [choice]}

    def _logprobs(self, text: str) -> dict[str, Any] | None:
        if not self.has_logprobs:
            return None
        tokens = [{"token": char, "bytes": list(char.encode()), "logprob": -0.5} for char in text]
        return {"content": [token | {"top_logprobs": [token]} for token in tokens]}


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
        """One token for each word, of tools for each one."""
        assert job.request
        self.asked.append(job.request)
        return Tokenized(list(range(sum(len(text.split()) for text in job.request.texts()))))


def cut(text: str, lengths: Sequence[int]) -> Iterator[str]:
    """`text` in pieces of these lengths, over and over."""
    start, turn = 0, 0
    while start < len(text):
        length = lengths[turn % len(lengths)]
        yield text[start : start + length]
        start, turn = start + length, turn + 1


def _head(kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": kind, "created": 1, "model": MODEL}
