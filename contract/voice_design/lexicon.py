"""Texts as words, and words by what they mean: what `suggest` looks things up in.

    words(text)                     a text as words, in small letters and without umlauts
    Lexicon.add("tief-", meaning)   in the notation of `contract.voice_design.vocabulary`
    Lexicon.read(words)             what may be meant at every place

The time grows with the text alone: each different word costs as many look-ups as the longest entry has letters.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

_WORD = re.compile(r"[0-9]+|%|[^\W\d_]+(?:'[^\W\d_]+)*")
_CLAUSE = re.compile(r"[.,;:!?()\n\u2014]")
_BETWEEN = frozenset({"", "-", "\u2010", "\u2011", "\u2013", "'"})
_UMLAUTS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "æ": "ae", "ø": "oe"})

LONGEST_ENTRY = 24
"""Letters of a beginning or an ending, at most."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a text.

    Attributes:
        text: folded, see `fold`; a run of digits is a word too.
        is_capital: whether it was written with a capital.
        opens: whether a clause begins with it.
        is_joined: whether only a hyphen, or nothing, is between it and the word before.
    """

    text: str
    is_capital: bool = False
    opens: bool = False
    is_joined: bool = False


@dataclass(frozen=True, slots=True)
class Meaning:
    """What an entry stands for; `language` is that of the entry, None where it counts in every text."""

    kind: str
    value: str = ""
    language: str | None = None


@dataclass(frozen=True, slots=True)
class Match:
    """An entry found at a place: it spans `length` words, and `letters` of the first one."""

    length: int
    letters: int
    meaning: Meaning


def fold(text: str) -> str:
    """In small letters, with `ae` for `ä` and `ss` for `ß`."""
    return unicodedata.normalize("NFC", text.casefold()).translate(_UMLAUTS)


def words(text: str) -> list[Word]:
    """The words of `text` in their order."""
    text = unicodedata.normalize("NFC", text).replace("\u2019", "'")
    found: list[Word] = []
    end = 0
    for match in _WORD.finditer(text):
        gap, end = text[end : match.start()], match.end()
        opens = not found or _CLAUSE.search(gap) is not None
        is_joined = bool(found) and gap in _BETWEEN
        found.append(Word(fold(match[0]), match[0][0].isupper(), opens, is_joined))
    return found


@dataclass(frozen=True, slots=True)
class Lexicon:
    """Entries by their first word."""

    _exact: dict[str, list[tuple[tuple[str, ...], Meaning]]] = field(default_factory=lambda: defaultdict(list))
    _beginnings: dict[str, list[tuple[tuple[str, ...], Meaning]]] = field(default_factory=lambda: defaultdict(list))
    _endings: dict[str, list[tuple[tuple[str, ...], Meaning]]] = field(default_factory=lambda: defaultdict(list))

    def add(self, entry: str, meaning: Meaning) -> None:
        """Adds an entry."""
        parts = tuple(fold(part) for part in entry.split())
        first = parts[0]
        if first.startswith("-"):
            self._endings[first[1:]].append((parts[1:], meaning))
        elif first.endswith("-"):
            self._beginnings[first[:-1]].append((parts[1:], meaning))
        else:
            self._exact[first].append((parts[1:], meaning))

    def add_all(self, entries: Mapping[str, Iterable[str]], kind: str, value: str) -> None:
        """Adds the entries of several languages, which all mean the same."""
        for language, words in entries.items():
            for entry in words:
                self.add(entry, Meaning(kind, value, language))

    def read(self, text: Sequence[Word]) -> list[list[Match]]:
        """What may be meant at every word of `text`."""
        alone: dict[str, list[Match]] = {}
        longer: dict[str, list[tuple[int, tuple[str, ...], Meaning]]] = {}
        for known in {word.text for word in text}:
            openings = list(self._openings(known))
            alone[known] = [Match(1, letters, meaning) for letters, rest, meaning in openings if not rest]
            longer[known] = [opening for opening in openings if opening[1]]
        found = []
        for place, word in enumerate(text):
            phrases = [
                Match(1 + len(rest), letters, meaning)
                for letters, rest, meaning in longer[word.text]
                if all(_fits(text, place + step, part) for step, part in enumerate(rest, 1))
            ]
            found.append(alone[word.text] + phrases if phrases else alone[word.text])
        return found

    def _openings(self, word: str) -> Iterator[tuple[int, tuple[str, ...], Meaning]]:
        for rest, meaning in self._exact.get(word, ()):
            yield len(word) + 1, rest, meaning
        for letters in range(2, min(len(word), LONGEST_ENTRY) + 1):
            for rest, meaning in self._beginnings.get(word[:letters], ()):
                yield letters, rest, meaning
            for rest, meaning in self._endings.get(word[-letters:], ()):
                yield letters, rest, meaning


def _fits(text: Sequence[Word], place: int, part: str) -> bool:
    if place >= len(text):
        return False
    return text[place].text.startswith(part[:-1]) if part.endswith("-") else text[place].text == part
