"""What an LLM is asked and what it gives back: the job and the protocol of chat."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from typing_extensions import TypedDict

from contract.catalog import ChatModel
from contract.catalog.base import IMAGE_TOKENS, likely_tokens, most_tokens, utf8_bytes
from contract.chat.request import ChatRequest
from contract.chat.usage import ChatUsage
from contract.completions import CompletionJob, CompletionReply
from contract.errors import INVALID_REQUEST
from contract.limits import most_with_logprobs
from contract.tokens import DetokenizeJob, Tokenized, TokenizeJob
from contract.wires import contents

COUNT_S = 0.25
"""Seconds between two counts of an answer that is generated in one piece."""


@dataclass(frozen=True, slots=True)
class ChatJob:
    """A conversation to answer for `owner`; owners take turns, and share no prefix cache."""

    request: ChatRequest
    owner: str = ""

    def most_input_tokens(self, model: ChatModel) -> int:
        """An upper bound of the tokens of the prompt. An image may be as long as the window."""
        request = self.request
        if any(message.images for message in request.messages):
            return model.context_window
        parts = len(request.messages) + len(request.tools or ())
        return min(most_tokens(utf8_bytes(request.texts()), parts), model.context_window)

    def likely_input_tokens(self, model: ChatModel) -> int:
        images = IMAGE_TOKENS * sum(message.images for message in self.request.messages)
        return min(likely_tokens(self.request.texts()) + images, model.context_window)

    def most_output_tokens(self, model: ChatModel) -> int:
        """Output tokens of all choices together, at most."""
        window = model.context_window
        return min(self.request.budget or window, window) * (self.request.n or 1)


def check_logprobs(tokens: int, others: int, param: str) -> None:
    """Raises INVALID_REQUEST for more `tokens` with so many `others` each than one reply holds."""
    if tokens > (most := most_with_logprobs(others)):
        raise INVALID_REQUEST(
            f"`{param}` of up to {tokens} tokens were requested, with {others} others each; one request may have "
            f"at most {most} such tokens in all its answers together",
            param=param,
        )


class ChatChoice(TypedDict):
    """One of the answers."""

    index: int
    message: dict[str, Any]
    logprobs: dict[str, Any] | None
    finish_reason: str | None


class ChatCompletion(TypedDict):
    """A finished chat completion, in OpenAI's schema."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: ChatUsage


@dataclass(frozen=True, slots=True)
class ChatReply:
    """A finished answer, and the tokens to bill.

    Attributes:
        cached_tokens: of the prompt, those that an earlier request had left in the cache.
        cut_tokens: that were cut from the top of the input, because it did not fit.
        stop_sequence: of `stop`, what ended the first answer; None where something else did.
    """

    body: ChatCompletion
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    cut_tokens: int = 0
    stop_sequence: str | None = None

    @property
    def text(self) -> str:
        """What the first answer says; empty where it calls tools only."""
        return self.body["choices"][0]["message"]["content"] or ""


class ChatBatch(NamedTuple):
    r"""Events of a stream that were ready at one time. `data: [DONE]` is the ingress's to write.

    A tuple, because one crosses between processes for every few tokens: it is pickled without a call of Python code.

    Attributes:
        events: one or more `data: {...}\n\n`.
        prompt_tokens, completion_tokens: of the whole call so far, so that an aborted stream can be billed.
        cached_tokens, cut_tokens, stop_sequence: as in `ChatReply`.
    """

    events: bytes
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    cut_tokens: int = 0
    stop_sequence: str | None = None

    @property
    def text(self) -> str:
        """What the first answer goes on with."""
        first = [choice for chunk in contents(self.events) for choice in chunk["choices"] if choice["index"] == 0]
        return "".join(choice.get("text") or choice.get("delta", {}).get("content") or "" for choice in first)

    @staticmethod
    def joined(batches: Sequence[ChatBatch]) -> ChatBatch:
        """Successive batches of one stream as one: all events, and what the last of them says of the call."""
        if len(batches) == 1:
            return batches[0]
        return batches[-1]._replace(events=b"".join([batch.events for batch in batches]))


class ChatEngine(Protocol):
    """An LLM, wherever it runs: an adapter in `models.chat`, its replica, or the gate before it."""

    async def complete(self, job: ChatJob) -> ChatReply:
        """The whole answer. Raises INVALID_REQUEST for what only the engine can judge."""
        ...

    def stream(self, job: ChatJob) -> AsyncGenerator[ChatBatch, None]:
        """The answer as groups of ready events; leaving the iteration frees the engine. Raises as `complete`."""
        ...

    async def write(self, job: CompletionJob) -> CompletionReply:
        """The continued prompts, whole. Raises as `complete`."""
        ...

    def write_stream(self, job: CompletionJob) -> AsyncGenerator[ChatBatch, None]:
        """The continued prompts as they are made; leaving the iteration frees the engine. Raises as `complete`."""
        ...

    def counted(self, job: ChatJob | CompletionJob) -> AsyncGenerator[ChatBatch | ChatReply | CompletionReply, None]:
        """What `complete` or `write` answers; until then the tokens so far, as batches without events, every COUNT_S.

        Leaving the iteration frees the engine.
        """
        ...

    async def tokenize(self, job: TokenizeJob) -> Tokenized:
        """The tokens of a conversation as `complete` would read it, uncut, or of a text. Raises as `complete`."""
        ...

    async def detokenize(self, job: DetokenizeJob) -> str:
        """The text that the ids spell. Raises INVALID_REQUEST for an id that the vocabulary lacks."""
        ...
