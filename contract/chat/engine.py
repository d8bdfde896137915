"""Job, replies and protocol of an LLM."""

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
"""Seconds between two token counts of an answer that is returned whole."""


@dataclass(frozen=True, slots=True)
class ChatJob:
    """Conversation to answer for `owner`; owners take turns, and share no prefix cache."""

    request: ChatRequest
    owner: str = ""

    def most_input_tokens(self, model: ChatModel) -> int:
        """Returns an upper bound of the tokens of the prompt. An image may fill the window."""
        request = self.request
        if any(message.images for message in request.messages):
            return model.context_window
        parts = len(request.messages) + len(request.tools or ())
        return min(most_tokens(utf8_bytes(request.texts()), parts), model.context_window)

    def likely_input_tokens(self, model: ChatModel) -> int:
        images = IMAGE_TOKENS * sum(message.images for message in self.request.messages)
        return min(likely_tokens(self.request.texts()) + images, model.context_window)

    def most_output_tokens(self, model: ChatModel) -> int:
        """Returns the most output tokens of all choices together."""
        window = model.context_window
        return min(self.request.budget or window, window) * (self.request.n or 1)


def check_logprobs(tokens: int, others: int, param: str) -> None:
    """Raises INVALID_REQUEST if one reply cannot hold `tokens` with `others` alternatives each."""
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
    """Finished answer, and the tokens to bill.

    Attributes:
        cached_tokens: tokens of the prompt that an earlier request left in the cache.
        cut_tokens: tokens that were cut from the top of the input, because it did not fit.
        stop_sequence: entry of `stop` that ended the first answer; None where something else did.
    """

    body: ChatCompletion
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    cut_tokens: int = 0
    stop_sequence: str | None = None

    @property
    def text(self) -> str:
        """Text of the first answer; empty if the answer only calls tools."""
        return self.body["choices"][0]["message"]["content"] or ""


class ChatBatch(NamedTuple):
    r"""Events of a stream that were ready at one time. The ingress writes `data: [DONE]`.

    It is a tuple, which pickles without a call of Python code: one crosses between processes for every few tokens.

    Attributes:
        events: one or more `data: {...}\n\n`.
        prompt_tokens, completion_tokens: tokens of the whole call so far, so that an aborted stream can be billed.
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
        """Text that the batch adds to the first answer."""
        first = [choice for chunk in contents(self.events) for choice in chunk["choices"] if choice["index"] == 0]
        return "".join(choice.get("text") or choice.get("delta", {}).get("content") or "" for choice in first)

    @staticmethod
    def joined(batches: Sequence[ChatBatch]) -> ChatBatch:
        """Returns successive batches of one stream as one: all events, with the counts of the last batch."""
        if len(batches) == 1:
            return batches[0]
        return batches[-1]._replace(events=b"".join([batch.events for batch in batches]))


class ChatEngine(Protocol):
    """An LLM: an adapter in `models.chat`, or its replica. The gate calls its methods by name."""

    async def complete(self, job: ChatJob) -> ChatReply:
        """Returns the whole answer. Raises INVALID_REQUEST for faults that only the engine can find."""
        ...

    def stream(self, job: ChatJob) -> AsyncGenerator[ChatBatch, None]:
        """Yields the answer as batches of ready events; leaving the iteration frees the engine.

        Raises as `complete`.
        """
        ...

    async def write(self, job: CompletionJob) -> CompletionReply:
        """Returns the continued prompts, whole. Raises as `complete`."""
        ...

    def write_stream(self, job: CompletionJob) -> AsyncGenerator[ChatBatch, None]:
        """Yields the continued prompts as they are generated; leaving the iteration frees the engine.

        Raises as `complete`.
        """
        ...

    def counted(self, job: ChatJob | CompletionJob) -> AsyncGenerator[ChatBatch | ChatReply | CompletionReply, None]:
        """Yields the tokens so far every COUNT_S, as batches without events, then the reply of `complete` or `write`.

        Leaving the iteration frees the engine.
        """
        ...

    async def tokenize(self, job: TokenizeJob) -> Tokenized:
        """Returns the tokens of a text, or of a conversation as `complete` reads it, uncut. Raises as `complete`."""
        ...

    async def detokenize(self, job: DetokenizeJob) -> str:
        """Returns the text of token ids. Raises INVALID_REQUEST for an id that the vocabulary lacks."""
        ...
