"""Words that count or negate, of many languages together: no word has another value in another language.

spoken_ordinal(["und", "zweitens", "eier"]) -> Ordinal(value=2, is_certain=True)     what begins an item of a list
is_number("einundzwanzig"), is_negation("keinerlei"), negates("möglich", "unmöglich")

The tables are in `words.toml`. Of numbers and negations too many are better than too few: a word that is listed may not
change at all, others may once in a while.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

TABLES: dict[str, Any] = tomllib.loads(Path(__file__).with_name("words.toml").read_text("utf-8"))


class Ordinal(NamedTuple):
    """The number of an item. It `is_certain` where the word can mean nothing else."""

    value: int
    is_certain: bool


def _values(lines: Iterable[str]) -> dict[str, int]:
    return {word: value for line in lines for value, word in enumerate(line.split(), 1)}


_ORDINALS: dict[str, Any] = TABLES["ordinals"]
_CERTAIN, _POSSIBLE, _NUMERALS = (_values(_ORDINALS[name]) for name in ("certain", "possible", "numerals"))
_AFTER = {lead: _values([line]) for lead, line in _ORDINALS["after"].items()}
_HEADS, _CONNECTIVES = frozenset(_ORDINALS["heads"].split()), frozenset(_ORDINALS["connectives"].split())

_NUMBERS = frozenset(TABLES["numbers"].split()).union(_CERTAIN, _POSSIBLE, _NUMERALS, *_AFTER.values())
_COMPOUND = re.compile("|".join(f"(?:{'|'.join(parts.split())}){{2,12}}" for parts in TABLES["compounds"]))
_ROMAN = re.compile("(?=..)x{0,3}(ix|iv|v?i{0,3})")
_LONGEST = 60
"""Longer words are not compared with compound numbers, in characters."""

_NEGATIONS = frozenset(TABLES["negations"].split())
_NEGATIVE = re.compile(r"kein\w{0,4}|\w+n't|n'\w+|не\w{2,}|ничто\w*|없\w*|않\w*|아니\w*")
_NEGATING_PREFIXES = frozenset(TABLES["negating_prefixes"].split())
_NEGATING_SUFFIXES = frozenset(TABLES["negating_suffixes"].split())


def spoken_ordinal(words: Sequence[str]) -> Ordinal | None:
    """The ordinal that `words`, in lower case, begin with, if it begins an item. Only three of them count."""
    if words and words[0] in _CONNECTIVES:
        ordinal = _ordinal(words[1:])
        # "and second" may be any second; "and secondly" is not.
        if ordinal and ordinal.is_certain:
            return ordinal
    return _ordinal(words)


def _ordinal(words: Sequence[str]) -> Ordinal | None:
    first, second = (*words[:2], "", "")[:2]
    if first in _CERTAIN:
        return Ordinal(_CERTAIN[first], True)
    if first in _POSSIBLE:
        return Ordinal(_POSSIBLE[first], False)
    if first in _HEADS and second in _NUMERALS:
        return Ordinal(_NUMERALS[second], False)
    if value := _AFTER.get(first, {}).get(second):
        return Ordinal(value, False)
    return None


def is_number(word: str) -> bool:
    """Whether `word`, in lower case, says how many, which of several, or how a number is read."""
    return word in _NUMBERS or (len(word) <= _LONGEST and bool(_COMPOUND.fullmatch(word) or _ROMAN.fullmatch(word)))


def is_negation(word: str) -> bool:
    """Whether `word`, in lower case, negates."""
    return word in _NEGATIONS or bool(_NEGATIVE.fullmatch(word))


def negates(word: str, other: str) -> bool:
    """Whether one of both words may be the opposite of the other: `möglich` and `unmöglich`."""
    short, long = sorted((word, other), key=len)
    return long.removesuffix(short) in _NEGATING_PREFIXES or long.removeprefix(short) in _NEGATING_SUFFIXES
