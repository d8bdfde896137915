"""POST /completions: body, job and reply. The schema is OpenAI's for plain text.

CompletionRequest -> CompletionJob -> ChatEngine.write -> CompletionReply
                                      ChatEngine.write_stream -> batches of events, as of a chat
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, SkipValidation, model_validator
from typing_extensions import TypedDict

from contract.base import Lenient, Text, read_texts
from contract.catalog import ChatModel
from contract.catalog.base import likely_tokens, most_tokens, utf8_bytes
from contract.chat import sampling
from contract.chat.usage import ChatUsage
from contract.errors import INVALID_REQUEST

MAX_COMPLETIONS = 128
"""Prompts of one request times `n`, the answers to each."""
MAX_COMPLETION_LOGPROBS = 5
COMPLETION_TOKENS = 16
"""Most tokens of each answer if a request sets no limit, as in OpenAI's API."""
SCORED_PROMPT_TOKENS = 4096
"""Tokens of one prompt with `logprobs` of its own: each needs memory for one number per entry of the vocabulary."""


class CompletionRequest(Lenient):
    """A body of POST /completions. `null` is the same as leaving a field out."""

    model: str
    prompt: Annotated[SkipValidation[tuple[Text, ...]], read_texts(MAX_COMPLETIONS, "prompts")]
    suffix: str | None = None
    max_tokens: Annotated[int, Field(ge=0)] | None = None
    temperature: sampling.Temperature | None = None
    top_p: sampling.TopP | None = None
    top_k: sampling.TopK | None = None
    min_p: sampling.MinP | None = None
    n: sampling.Choices | None = None
    best_of: int | None = None
    stream: bool | None = None
    stream_options: sampling.StreamOptions | None = None
    logprobs: Annotated[int, Field(ge=0, le=MAX_COMPLETION_LOGPROBS)] | None = None
    echo: bool | None = None
    stop: sampling.Stop = None
    seed: sampling.Seed | None = None
    presence_penalty: sampling.Penalty | None = None
    frequency_penalty: sampling.Penalty | None = None
    repetition_penalty: sampling.RepetitionPenalty | None = None

    @model_validator(mode="after")
    def _fields_agree(self) -> CompletionRequest:
        if self.best_of is not None and self.best_of != self.answers:
            raise ValueError(f"`best_of` is {self.best_of}; it must equal `n`, which is {self.answers}")
        if len(self.prompt) * self.answers > MAX_COMPLETIONS:
            raise ValueError(
                f"{len(self.prompt)} prompts with {self.answers} answers each were requested; "
                f"at most {MAX_COMPLETIONS} answers together are allowed"
            )
        if self.budget == 0 and not self.echo:
            raise ValueError("`max_tokens` is 0, which is allowed only with `echo: true`")
        if self.suffix is not None and self.echo:
            raise ValueError("`suffix` and `echo` cannot be used together")
        return self

    @property
    def answers(self) -> int:
        return self.n or 1

    @property
    def budget(self) -> int:
        """Most tokens of each answer."""
        return COMPLETION_TOKENS if self.max_tokens is None else self.max_tokens

    @property
    def include_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)


def check_suffix(request: CompletionRequest, model: ChatModel) -> None:
    """Raises INVALID_REQUEST for a `suffix` if `model` cannot fill a gap."""
    if request.suffix is not None and not model.fill_in:
        raise INVALID_REQUEST(f"`{model.id}` cannot fill a gap before a `suffix`; leave it out", param="suffix")


@dataclass(frozen=True, slots=True)
class CompletionJob:
    """Prompts to continue for `owner`. Owners take turns, and share no prefix cache."""

    request: CompletionRequest
    owner: str = ""

    def most_input_tokens(self, model: ChatModel) -> int:
        return sum(min(self._most_of(prompt), model.context_window) for prompt in self.request.prompt)

    def likely_input_tokens(self, model: ChatModel) -> int:
        likely = (likely_tokens([p]) if isinstance(p, str) else len(p) for p in self.request.prompt)
        return sum(min(tokens, model.context_window) for tokens in likely)

    def most_output_tokens(self, model: ChatModel) -> int:
        """Returns the most output tokens of all answers together."""
        answers = len(self.request.prompt) * self.request.answers
        return answers * min(self.request.budget, model.context_window)

    def _most_of(self, prompt: Text) -> int:
        own = utf8_bytes([prompt]) if isinstance(prompt, str) else len(prompt)
        return most_tokens(own + utf8_bytes([self.request.suffix or ""]), 1)


class CompletionLogprobs(TypedDict):
    """Lists with one entry for each token: its offset in `text`, its logprob, its text, and the most probable tokens.

    The first token of a prompt has no logprob, because nothing precedes it.
    """

    text_offset: list[int]
    token_logprobs: list[float | None]
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None]


class CompletionChoice(TypedDict):
    """One answer. Answers to the first prompt come first."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: str | None


class Completion(TypedDict):
    """Finished answers, in OpenAI's schema."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: ChatUsage


@dataclass(frozen=True, slots=True)
class CompletionReply:
    """Finished answers, and the tokens to bill. `cached_tokens` and `cut_tokens` are those of `ChatReply`."""

    body: Completion
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    cut_tokens: int = 0
