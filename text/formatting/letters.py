"""Beginnings and ends of dictated letters: "Sehr geehrte Frau Müller,", "Best regards, Jane".

body_begins(tokens, text)          after the salutation
closing_begins(tokens, text)       the closing, and the name below it
"""

from __future__ import annotations

from collections.abc import Sequence

from text.formatting.tokens import Token
from text.formatting.words import TABLES
from text.sentences import ends_sentence

MOST_NAMES = 6
"""Words that may follow a greeting or a closing."""

CERTAIN_WORDS = 3
"""A closing of at least this number of words needs no comma before it."""


def _phrases(table: str) -> list[tuple[str, ...]]:
    phrases = table.strip().replace("ß", "ss").replace("\n", "|").split("|")
    return sorted((tuple(phrase.split()) for phrase in phrases), key=len, reverse=True)


_LETTERS: dict[str, str] = TABLES["letters"]
_GREETINGS, _CLOSINGS = _phrases(_LETTERS["greetings"]), _phrases(_LETTERS["closings"])
_ADDRESSED, _SIGNED = frozenset(_LETTERS["addressed"].split()), frozenset(_LETTERS["signed"].split())


def body_begins(tokens: Sequence[Token], text: str) -> int | None:
    """Index of the first token after the salutation, None where there is none, or nothing after it."""
    body = None
    while (begin := _after_greeting(tokens, text, body or 0)) is not None:
        body = begin
    return body


def closing_begins(tokens: Sequence[Token], text: str) -> tuple[int | None, int | None]:
    """Indices of the first token of the closing and of the name, None where there is none."""
    longest = len(_CLOSINGS[0]) + MOST_NAMES
    for index in range(max(1, len(tokens) - longest), len(tokens)):
        words = _phrase_at(_CLOSINGS, tokens, index)
        names = index + words
        is_closing = words and (tokens[index].opens_clause or words >= CERTAIN_WORDS)
        if is_closing and all(_is_name(token, text, _SIGNED) for token in tokens[names:]):
            return index, names if names < len(tokens) else None
    return None, None


def _after_greeting(tokens: Sequence[Token], text: str, start: int) -> int | None:
    names = start + _phrase_at(_GREETINGS, tokens, start)
    if names == start or _phrase_at(_CLOSINGS, tokens, start):
        return None
    for index, token in enumerate(tokens[names : names + MOST_NAMES + 1], names):
        if token.opens_clause and (token.before.strip() != "." or ends_sentence(text, token.start)):
            return index if index > names else None
        if not _is_name(token, text, _ADDRESSED):
            break
    return None


def _phrase_at(phrases: Sequence[tuple[str, ...]], tokens: Sequence[Token], index: int) -> int:
    """Words of the longest of `phrases` that begins with a token, 0 without one. `ss` counts as `ß`."""
    words = tuple(token.text.replace("ß", "ss") for token in tokens[index : index + len(phrases[0])])
    return next((len(phrase) for phrase in phrases if words[: len(phrase)] == phrase), 0)


def _is_name(token: Token, text: str, others: frozenset[str]) -> bool:
    return token.kind == "word" and (text[token.start].isupper() or token.text in others)
