"""Engine outputs of prompts that are continued, as choices in OpenAI's schema: whole, or as events of a stream."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from contract.chat.engine import ChatBatch
from contract.chat.usage import ChatUsage, usage_of
from contract.completions import CompletionChoice, CompletionLogprobs, CompletionRequest
from contract.wires import event
from models.chat.events import Cached

if TYPE_CHECKING:
    from vllm.logprobs import Logprob, PromptLogprobs
    from vllm.outputs import CompletionOutput, RequestOutput

LEAST_LOGPROB = -9999.0
"""Stands for minus infinity, which JSON does not have."""


@dataclass(frozen=True, slots=True)
class CompletionPrompt:
    """A prompt as it goes to the engine.

    Attributes:
        budget: tokens that each answer may take.
        cut_tokens: number of tokens that were cut from its top.
        text: the text that `echo` repeats.
        first: the text of its first token, which has no logprob.
    """

    ids: list[int]
    budget: int
    cut_tokens: int = 0
    text: str = ""
    first: str = ""


@dataclass(slots=True)
class GrowingAnswer:
    """One answer while it grows. `offset` counts characters of its text."""

    has_begun: bool = False
    has_ended: bool = False
    offset: int = 0


@dataclass
class ChoiceBuilder:
    """Turns the outputs of one request into choices, and counts tokens.

    Args:
        head: `id`, `object`, `created` and `model` of the reply and of each event.
        prompts: prompts in the order of the request; their answers have the indices from `n` times their number on.
    """

    request: CompletionRequest
    head: dict[str, Any]
    prompts: list[CompletionPrompt]
    completion_tokens: int = 0
    _answers: dict[int, GrowingAnswer] = field(default_factory=dict)
    _read: dict[int, Cached] = field(default_factory=dict)
    _scores: dict[int, PromptLogprobs] = field(default_factory=dict)

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompts that the engine has begun."""
        return sum(len(self.prompts[number].ids) for number in self._read)

    @property
    def cached_tokens(self) -> int:
        return sum(cached.tokens for cached in self._read.values())

    @property
    def cut_tokens(self) -> int:
        return sum(prompt.cut_tokens for prompt in self.prompts)

    def choices(self, number: int, result: RequestOutput) -> list[CompletionChoice]:
        """Returns what `result` adds to the answers to prompt `number`."""
        self._read.setdefault(number, Cached()).update(result)
        # Kept for all answers: vLLM loses those that come with the first token of one and the second of another.
        if result.prompt_logprobs:
            self._scores.setdefault(number, result.prompt_logprobs)
        added = (self._choice(self.prompts[number], number, output) for output in result.outputs)
        return [choice for choice in added if choice]

    def batch(self, number: int, result: RequestOutput) -> ChatBatch | None:
        """The same as events; None where nothing is added."""
        choices = self.choices(number, result)
        return self._batch(b"".join(self._event([choice]) for choice in choices)) if choices else None

    def last_batch(self) -> ChatBatch:
        """The last event: token counts, if the request wants them."""
        return self._batch(self._event([], self.usage()) if self.request.include_usage else b"")

    def count(self) -> ChatBatch:
        return self._batch(b"")

    def usage(self) -> ChatUsage:
        return usage_of(
            self.prompt_tokens, self.completion_tokens, cached_tokens=self.cached_tokens, cut_tokens=self.cut_tokens
        )

    def _choice(self, prompt: CompletionPrompt, number: int, output: CompletionOutput) -> CompletionChoice | None:
        index = number * self.request.answers + output.index
        answer = self._answers.setdefault(index, GrowingAnswer())
        if answer.has_ended or not (output.token_ids or output.finish_reason):
            return None
        text, logprobs = "", CompletionLogprobs(text_offset=[], token_logprobs=[], tokens=[], top_logprobs=[])
        if self.request.echo and not answer.has_begun:
            text = prompt.text
            _add(logprobs, answer, prompt.ids, self._scores.get(number, ()), prompt.first)
            answer.offset = len(text)
        if prompt.budget:
            self.completion_tokens += len(output.token_ids)
            text += output.text
            _add(logprobs, answer, output.token_ids, output.logprobs or ())
        answer.has_begun = True
        answer.has_ended = output.finish_reason is not None
        # Without a budget, the one token that was made may have been an end; but the end was the budget's.
        reason = output.finish_reason if prompt.budget or not answer.has_ended else "length"
        wanted = logprobs if self.request.logprobs is not None else None
        return CompletionChoice(index=index, text=text, logprobs=wanted, finish_reason=reason)

    def _event(self, choices: list[CompletionChoice], usage: ChatUsage | None = None) -> bytes:
        chunk = self.head | {"choices": choices}
        if self.request.include_usage:
            chunk["usage"] = usage
        return event(chunk)

    def _batch(self, events: bytes) -> ChatBatch:
        return ChatBatch(events, self.prompt_tokens, self.completion_tokens, self.cached_tokens, self.cut_tokens)


def whole(pieces: Iterable[CompletionChoice]) -> list[CompletionChoice]:
    """The choices that come in `pieces`, by their index."""
    choices: dict[int, CompletionChoice] = {}
    for piece in pieces:
        so_far = choices.setdefault(piece["index"], piece)
        if so_far is not piece:
            so_far["text"] += piece["text"]
            so_far["finish_reason"] = piece["finish_reason"]
            lists: Any = so_far["logprobs"]
            for name, values in (piece["logprobs"] or {}).items():
                lists[name] += values
    return [choices[index] for index in sorted(choices)]


def _add(
    logprobs: CompletionLogprobs,
    answer: GrowingAnswer,
    ids: Sequence[int],
    likelihoods: Sequence[Mapping[int, Logprob] | None],
    first: str = "",
) -> None:
    """Adds the tokens `ids`, which follow what `answer` has, to `logprobs`; a token without a logprob is `first`."""
    for token, likely in zip(ids, likelihoods, strict=False):
        chosen = likely[token] if likely else None
        text = (chosen.decoded_token or "") if chosen else first
        logprobs["tokens"].append(text)
        logprobs["token_logprobs"].append(max(chosen.logprob, LEAST_LOGPROB) if chosen else None)
        logprobs["top_logprobs"].append(_by_text(likely) if likely else None)
        logprobs["text_offset"].append(answer.offset)
        answer.offset += len(text)


def _by_text(likely: Mapping[int, Logprob]) -> dict[str, float]:
    """Logprobs by the text of their tokens; of several with the same text the most probable."""
    highest: dict[str, float] = {}
    for token in likely.values():
        text = token.decoded_token or ""
        highest[text] = max(token.logprob, highest.get(text, LEAST_LOGPROB), LEAST_LOGPROB)
    return highest
