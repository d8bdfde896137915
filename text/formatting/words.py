"""Words that count or negate, of many languages together: no word has another value in another language.

spoken_ordinal(("und", "zweitens", "eier")) -> Ordinal(value=2, is_certain=True)     the beginning of an item of a list
is_number("einundzwanzig"), is_negation("keinerlei"), negates("möglich", "unmöglich")

The tables are in `words.toml`. Of numbers and negations too many are better than too few: a word that is listed may not
change at all, others may once in a while.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

TABLES: dict[str, Any] = tomllib.loads(Path(__file__).with_name("words.toml").read_text("utf-8"))


class Ordinal(NamedTuple):
    """The number of an item. It `is_certain` where the word can mean nothing else."""

    value: int
    is_certain: bool = False


NO_ORDINAL = Ordinal(0)


def _values(*lines: str) -> Iterator[tuple[str, int]]:
    return ((word, value) for line in lines for value, word in enumerate(line.split(), 1))


_LISTS: dict[str, Any] = TABLES["ordinals"]
_ORDINALS: dict[tuple[str, ...], Ordinal] = {
    **{(lead, word): Ordinal(n) for lead, line in _LISTS["after"].items() for word, n in _values(line)},
    **{(head, word): Ordinal(n) for head in _LISTS["heads"].split() for word, n in _values(*_LISTS["numerals"])},
    **{(word,): Ordinal(n) for word, n in _values(*_LISTS["possible"])},
    **{(word,): Ordinal(n, True) for word, n in _values(*_LISTS["certain"])},
}
_CONNECTIVES = frozenset(_LISTS["connectives"].split())

_NUMBERS = frozenset(TABLES["numbers"].split()) | {words[-1] for words in _ORDINALS}
_COMPOUND = re.compile("|".join(f"(?:{'|'.join(parts.split())}){{2,12}}" for parts in TABLES["compounds"]))
_ROMAN = re.compile("(?=..)x{0,3}(ix|iv|v?i{0,3})")
_LONGEST = 60
"""Longer words are not compared with compound numbers, in characters."""

_NEGATIONS = frozenset(TABLES["negations"].split())
_NEGATIVE = re.compile(r"kein\w{0,4}|\w+n't|n'\w+|не\w{2,}|ничто\w*|없\w*|않\w*|아니\w*")
_PREFIXES, _SUFFIXES = (frozenset(TABLES[f"negating_{ends}"].split()) for ends in ("prefixes", "suffixes"))


def spoken_ordinal(words: tuple[str, ...]) -> Ordinal:
    """The ordinal that `words`, in lower case, begin with, if it begins an item. Only three of them count."""
    # "and second" may be any second; "and secondly" is not.
    if words and words[0] in _CONNECTIVES and (ordinal := _ordinal(words[1:])).is_certain:
        return ordinal
    return _ordinal(words)


def _ordinal(words: tuple[str, ...]) -> Ordinal:
    return _ORDINALS.get(words[:1]) or _ORDINALS.get(words[:2]) or NO_ORDINAL


def counted(items: Iterable[tuple[int, int]]) -> list[list[int]]:
    """The places of items with their numbers, as lists that count on from 1; others belong to no list."""
    lists: list[list[int]] = [[]]
    for place, value in items:
        if value == len(lists[-1]) + 1:
            lists[-1].append(place)
        elif value == 1:
            lists.append([place])
    return lists


def is_number(word: str) -> bool:
    """Says if `word`, in lower case, is how many, which of several, or how a number is read."""
    return word in _NUMBERS or (len(word) <= _LONGEST and bool(_COMPOUND.fullmatch(word) or _ROMAN.fullmatch(word)))


def is_negation(word: str) -> bool:
    """Says if `word`, in lower case, negates."""
    return word in _NEGATIONS or bool(_NEGATIVE.fullmatch(word))


def negates(word: str, other: str) -> bool:
    """Says if one of both words may be the opposite of the other: `möglich` and `unmöglich`."""
    short, long = sorted((word, other), key=len)
    return long.removesuffix(short) in _PREFIXES or long.removeprefix(short) in _SUFFIXES
