"""What a job may cost, before its engine has counted: at most, which a spend limit is held against, and likely."""

from __future__ import annotations

from collections.abc import Iterable

from contract.errors import INVALID_REQUEST
from contract.limits import LOGPROB_OTHERS, LOGPROB_TOKENS

PART_TOKENS = 16
"""Control tokens around one message or text."""
TEMPLATE_TOKENS = 512
"""Tokens of a chat template's own words."""
BYTES_PER_TOKEN = 4
"""Bytes of UTF-8 per token, in ordinary text of any language."""
IMAGE_TOKENS = 256
"""Tokens of a small picture for a model that sees."""


def utf8_bytes(texts: Iterable[str]) -> int:
    """Bytes of `texts` together."""
    joined = "".join(texts)
    return len(joined) if joined.isascii() else len(joined.encode())


def most_tokens(text_bytes: int, parts: int) -> int:
    """An upper bound of the tokens of a text whose tokenizer is elsewhere: no token is shorter than a byte of UTF-8.

    `parts` are messages or texts, each of which brings a few control tokens; a chat template adds some of its own.
    """
    return text_bytes + PART_TOKENS * parts + TEMPLATE_TOKENS


def likely_tokens(texts: Iterable[str]) -> int:
    """About as many tokens as `texts` have: what a client owes that leaves before its engine has counted."""
    return -(-utf8_bytes(texts) // BYTES_PER_TOKEN)


def most_with_logprobs(others: int) -> int:
    """Tokens of all choices of a request together, with so many others beside each."""
    return LOGPROB_TOKENS * (1 + LOGPROB_OTHERS) // (1 + max(others, LOGPROB_OTHERS))


def check_logprobs(tokens: int, others: int, param: str) -> None:
    """Raises INVALID_REQUEST for more `tokens` with so many `others` each than one reply holds."""
    if tokens > (most := most_with_logprobs(others)):
        raise INVALID_REQUEST(
            f"`{param}` of up to {tokens} tokens were asked for, with {others} others each; one request has at most "
            f"{most} such tokens, all its answers together",
            param=param,
        )
