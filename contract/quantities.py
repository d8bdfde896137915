"""What a job may cost at most, before its engine has counted: the estimates that a spend limit is held against."""

from __future__ import annotations

from collections.abc import Iterable

PART_TOKENS = 16
"""Control tokens around one message or text."""
TEMPLATE_TOKENS = 512
"""Of a chat template's own words."""


def utf8_bytes(texts: Iterable[str]) -> int:
    """Bytes of `texts` together."""
    joined = "".join(texts)
    return len(joined) if joined.isascii() else len(joined.encode())


def most_tokens(text_bytes: int, parts: int) -> int:
    """An upper bound of the tokens of a text whose tokenizer is elsewhere: no token is shorter than a byte of UTF-8.

    `parts` are messages or texts, each of which brings a few control tokens; a chat template adds some of its own.
    """
    return text_bytes + PART_TOKENS * parts + TEMPLATE_TOKENS
