"""POST /tokenize and /detokenize: bodies, what an LLM is asked, and the replies. The schema is vLLM's.

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
from contract.errors import INVALID_REQUEST
from contract.limits import DETOKENIZE_IDS, TOKENIZE_BYTES_PER_TOKEN

FRAME_BYTES = 8192
"""Bytes of a reply beside the text: control tokens and words of a template."""
ID_BYTES = 8
"""Bytes that an id takes in a reply, at most."""
STRING_BYTES = 6
"""Bytes of strings in a reply for each byte of text, at most: byte-level vocabularies write some bytes as two."""


class TokenizeText(Lenient):
    """A text as it stands; `add_special_tokens` puts before it what the model expects there."""

    model: str
    prompt: str
    add_special_tokens: bool = True
    return_token_strs: bool | None = None

    def job(self) -> TokenizeJob:
        return TokenizeJob(
            text=self.prompt, add_special_tokens=self.add_special_tokens, with_strings=bool(self.return_token_strs)
        )


class TokenizeMessages(ChatRequest):
    """A conversation, as POST /chat/completions takes it; only what stands in its prompt counts."""

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

    # Tags are no identifiers, so that no error names them.


class DetokenizeRequest(Lenient):
    """A body of POST /detokenize."""

    model: str
    tokens: Annotated[list[Annotated[int, Field(ge=0)]], Items(DETOKENIZE_IDS)]


@dataclass(frozen=True, slots=True)
class TokenizeJob:
    """What is to become tokens: a conversation or a text, exactly one of them.

    Attributes:
        add_special_tokens: puts before it what the tokenizer has for that; templates of conversations bring their own.
        add_generation_prompt: a conversation ends with the opening of the answer, as when it is answered.
        with_strings: the tokens are wanted as the vocabulary writes them, too.
    """

    request: ChatRequest | None = None
    text: str | None = None
    add_special_tokens: bool = False
    add_generation_prompt: bool = True
    with_strings: bool = False


@dataclass(frozen=True, slots=True)
class Tokenized:
    """All tokens, also where they are more than the window holds."""

    ids: list[int]
    strings: list[str] | None = None


@dataclass(frozen=True, slots=True)
class DetokenizeJob:
    """Ids to write as text. An id that the vocabulary lacks is INVALID_REQUEST."""

    ids: tuple[int, ...]


class TokenizeReply(TypedDict):
    """Tokens of a prompt. `max_model_len` is the window: prompt and answer together."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: NotRequired[list[str] | None]


class DetokenizeReply(TypedDict):
    """The text that some tokens spell."""

    prompt: str


def reply_bytes(job: TokenizeJob) -> int:
    """Length of the reply at most: a token is a byte of text at least."""
    return FRAME_BYTES + _text_bytes(job) * (ID_BYTES + (STRING_BYTES if job.with_strings else 0))


def _text_bytes(job: TokenizeJob) -> int:
    return utf8_bytes(job.request.texts() if job.request else [job.text or ""])


def check_length(job: TokenizeJob, model: ChatModel) -> None:
    """Raises INVALID_REQUEST for far more text than the window of `model` holds: it takes time, and is not billed."""
    most = TOKENIZE_BYTES_PER_TOKEN * model.context_window
    length = _text_bytes(job)
    if length > most:
        field = "messages" if job.request else "prompt"
        raise INVALID_REQUEST(
            f"`{field}` has {length} bytes of text; with the window of `{model.id}`, {model.context_window} tokens, "
            f"one request may have at most {most}",
            param=field,
        )
