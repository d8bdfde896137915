"""POST /tokenize and /detokenize: bodies, jobs and replies. The schema is vLLM's.

TokenizeBody -> TokenizeJob -> ChatEngine.tokenize -> Tokenized -> TokenizeReply
DetokenizeRequest -> DetokenizeJob -> ChatEngine.detokenize -> DetokenizeReply
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, NotRequired

from pydantic import Discriminator, Field, RootModel, Tag
from typing_extensions import TypedDict

from contract.base import Items, Lenient
from contract.catalog import ChatModel
from contract.catalog.base import utf8_bytes
from contract.chat.request import ChatRequest
from contract.chat.thinking import check_fits_model
from contract.errors import INVALID_REQUEST
from contract.limits import DETOKENIZE_IDS, TOKENIZE_BYTES_PER_TOKEN

FRAME_BYTES = 8192
"""Bytes of a reply for control tokens and words of a template."""
ID_BYTES = 8
"""Most bytes of an id in a reply."""
STRING_BYTES = 6
"""Most bytes of strings in a reply for each byte of text: byte-level vocabularies write some bytes as two."""


class TokenizeText(Lenient):
    """A plain text; `add_special_tokens` adds the tokens that the model expects before it."""

    model: str
    prompt: str
    add_special_tokens: bool = True
    return_token_strs: bool | None = None

    def job(self) -> TokenizeJob:
        return TokenizeJob(
            text=self.prompt, add_special_tokens=self.add_special_tokens, with_strings=bool(self.return_token_strs)
        )


class TokenizeMessages(ChatRequest):
    """A conversation in the format of POST /chat/completions; fields that do not enter the prompt are ignored."""

    add_generation_prompt: bool = True
    add_special_tokens: bool = False
    return_token_strs: bool | None = None

    def job(self) -> TokenizeJob:
        return TokenizeJob(
            request=self,
            add_special_tokens=self.add_special_tokens,
            add_generation_prompt=self.add_generation_prompt,
            with_strings=bool(self.return_token_strs),
        )


def _shape(data: Any) -> str:
    return "of messages" if isinstance(data, dict) and data.get("messages") is not None else "of text"


class TokenizeBody(
    RootModel[
        Annotated[
            Annotated[TokenizeText, Tag("of text")] | Annotated[TokenizeMessages, Tag("of messages")],
            Discriminator(_shape),
        ]
    ]
):
    """A body of POST /tokenize: a `prompt`, or `messages`."""


class DetokenizeRequest(Lenient):
    """A body of POST /detokenize."""

    model: str
    tokens: Annotated[list[Annotated[int, Field(ge=0)]], Items(DETOKENIZE_IDS)]


@dataclass(frozen=True, slots=True)
class TokenizeJob:
    """Input of a tokenizer: exactly one of a conversation and a text.

    Attributes:
        add_special_tokens: whether the tokenizer adds its special tokens; templates of conversations have their own.
        add_generation_prompt: whether a conversation ends with the opening of the answer, as it does for an answer.
        with_strings: whether the tokens are also returned as strings of the vocabulary.
    """

    request: ChatRequest | None = None
    text: str | None = None
    add_special_tokens: bool = False
    add_generation_prompt: bool = True
    with_strings: bool = False


@dataclass(frozen=True, slots=True)
class Tokenized:
    """All tokens, even if they exceed the window."""

    ids: list[int]
    strings: list[str] | None = None


@dataclass(frozen=True, slots=True)
class DetokenizeJob:
    """Ids to convert to text. An id that the vocabulary lacks is INVALID_REQUEST."""

    ids: tuple[int, ...]


class TokenizeReply(TypedDict):
    """Tokens of a prompt. `max_model_len` is the window, of prompt and answer together."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: NotRequired[list[str] | None]


class DetokenizeReply(TypedDict):
    """Text of the tokens."""

    prompt: str


def reply_bytes(job: TokenizeJob) -> int:
    """Returns the most bytes of the reply: a token has at least one byte of text."""
    return FRAME_BYTES + _text_bytes(job) * (ID_BYTES + (STRING_BYTES if job.with_strings else 0))


def _text_bytes(job: TokenizeJob) -> int:
    return utf8_bytes(job.request.texts() if job.request else [job.text or ""])


def check_job(job: TokenizeJob, model: ChatModel) -> None:
    """Raises as `check_fits_model`, and INVALID_REQUEST for far more text than fits the window: it is not billed."""
    if job.request:
        check_fits_model(job.request, model)
    most = TOKENIZE_BYTES_PER_TOKEN * model.context_window
    length = _text_bytes(job)
    if length > most:
        field = "messages" if job.request else "prompt"
        raise INVALID_REQUEST(
            f"`{field}` has {length} bytes of text; with the window of `{model.id}`, {model.context_window} tokens, "
            f"one request may have at most {most}",
            param=field,
        )
