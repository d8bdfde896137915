"""How dictated letters begin and end: "Sehr geehrte Frau Müller,", "Best regards, Jane".

body_begins(tokens, text)          after the salutation
closing_begins(tokens, text)       the closing, and the name below it
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from text.formatting.tokens import Token
from text.formatting.words import TABLES
from text.sentences import ends_sentence

MOST_NAMES = 6
"""Words that may follow a greeting or a closing."""

CERTAIN_WORDS = 3
"""A closing of at least so many words needs no comma before it."""


def _phrases(table: str) -> list[tuple[str, ...]]:
    return sorted((tuple(phrase.split()) for phrase in re.split(r"[|\n]", table.strip())), key=len, reverse=True)


_LETTERS: dict[str, str] = TABLES["letters"]
_GREETINGS, _CLOSINGS = _phrases(_LETTERS["greetings"]), _phrases(_LETTERS["closings"])
_ADDRESSED, _SIGNED = frozenset(_LETTERS["addressed"].split()), frozenset(_LETTERS["signed"].split())


def body_begins(tokens: Sequence[Token], text: str) -> int | None:
    """Index of the first token after the salutation, None where there is none, or nothing after it."""
    body = None
    while (begin := _after_greeting(tokens, text, body or 0)) is not None:
        body = begin
    return body


def closing_begins(tokens: Sequence[Token], text: str) -> tuple[int, int | None] | None:
    """Indices of the first token of the closing and of the name, if there is one; None without a closing."""
    longest = len(_CLOSINGS[0]) + MOST_NAMES
    for index in range(max(1, len(tokens) - longest), len(tokens)):
        phrase = _phrase_at(_CLOSINGS, tokens, index)
        if not phrase or not (tokens[index].opens_clause or len(phrase) >= CERTAIN_WORDS):
            continue
        names = index + len(phrase)
        if all(_is_name(token, text, _SIGNED) for token in tokens[names:]):
            return index, names if names < len(tokens) else None
    return None


def _after_greeting(tokens: Sequence[Token], text: str, start: int) -> int | None:
    greeting = _phrase_at(_GREETINGS, tokens, start)
    if not greeting or _phrase_at(_CLOSINGS, tokens, start):
        return None
    names = start + len(greeting)
    for index in range(names, min(names + MOST_NAMES + 1, len(tokens))):
        token = tokens[index]
        if token.opens_clause and (token.before.strip() != "." or ends_sentence(text, token.start)):
            return index if index > names else None
        if not _is_name(token, text, _ADDRESSED):
            return None
    return None


def _phrase_at(phrases: Sequence[tuple[str, ...]], tokens: Sequence[Token], index: int) -> tuple[str, ...] | None:
    """The longest of `phrases` that begins with a token. `ss` counts as `ß`."""
    words = tuple(token.text for token in tokens[index : index + len(phrases[0])])
    for phrase in phrases:
        if words[: len(phrase)] in (phrase, tuple(word.replace("ß", "ss") for word in phrase)):
            return phrase
    return None


def _is_name(token: Token, text: str, others: frozenset[str]) -> bool:
    return token.kind == "word" and (text[token.start].isupper() or token.text in others)
