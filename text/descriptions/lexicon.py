"""Texts as words, and words by what they mean: what `suggest` looks things up in.

    split(text)                a text as words, in small letters and without umlauts
    Lexicon.of(traits)         entries in the notation of `contract.voice_design.traits`
    Lexicon.read(words)        the matches at every word

The time grows with the text alone: each different word costs as many look-ups as the longest entry has letters.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from contract.voice_design.traits import Traits

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
    """An entry that begins at a word of a text: it spans `length` words, and `letters` of the first one."""

    length: int
    letters: int
    meaning: Meaning


_Entries = dict[str, list[tuple[tuple[str, ...], Meaning]]]
"""First word to the words that follow it in an entry, and what the entry means."""


def fold(text: str) -> str:
    """`text` in small letters, with `ae` for `ä` and `ss` for `ß`."""
    return unicodedata.normalize("NFC", text.casefold()).translate(_UMLAUTS)


def split(text: str) -> list[Word]:
    """The words of `text` in their order."""
    text = unicodedata.normalize("NFC", text).replace("\u2019", "'")
    words: list[Word] = []
    end = 0
    for match in _WORD.finditer(text):
        gap, end = text[end : match.start()], match.end()
        opens = not words or _CLAUSE.search(gap) is not None
        is_joined = bool(words) and gap in _BETWEEN
        words.append(Word(fold(match[0]), match[0][0].isupper(), opens, is_joined))
    return words


@dataclass(frozen=True, slots=True)
class Lexicon:
    """Entries by their first word."""

    _exact: _Entries = field(default_factory=lambda: defaultdict(list))
    _beginnings: _Entries = field(default_factory=lambda: defaultdict(list))
    _endings: _Entries = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def of(cls, traits: Traits) -> Lexicon:
        lexicon = cls()
        for entry, meaning in entries(traits):
            lexicon._add(entry, meaning)
        return lexicon

    def _add(self, entry: str, meaning: Meaning) -> None:
        first, *rest = (fold(part) for part in entry.split())
        if first.startswith("-"):
            self._endings[first[1:]].append((tuple(rest), meaning))
        elif first.endswith("-"):
            self._beginnings[first[:-1]].append((tuple(rest), meaning))
        else:
            self._exact[first].append((tuple(rest), meaning))

    def read(self, words: Sequence[Word]) -> list[list[Match]]:
        single: dict[str, list[Match]] = {}
        longer: dict[str, list[tuple[int, tuple[str, ...], Meaning]]] = {}
        for word in {word.text for word in words}:
            openings = list(self._openings(word))
            single[word] = [Match(1, letters, meaning) for letters, rest, meaning in openings if not rest]
            longer[word] = [opening for opening in openings if opening[1]]
        return [
            single[word.text]
            + [
                Match(1 + len(rest), letters, meaning)
                for letters, rest, meaning in longer[word.text]
                if all(_fits(words, index + step, part) for step, part in enumerate(rest, 1))
            ]
            for index, word in enumerate(words)
        ]

    def _openings(self, word: str) -> Iterator[tuple[int, tuple[str, ...], Meaning]]:
        for rest, meaning in self._exact.get(word, ()):
            yield len(word) + 1, rest, meaning
        for letters in range(2, min(len(word), LONGEST_ENTRY) + 1):
            for rest, meaning in self._beginnings.get(word[:letters], ()):
                yield letters, rest, meaning
            for rest, meaning in self._endings.get(word[-letters:], ()):
                yield letters, rest, meaning


def _fits(words: Sequence[Word], index: int, part: str) -> bool:
    if index >= len(words):
        return False
    return words[index].text.startswith(part[:-1]) if part.endswith("-") else words[index].text == part


def entries(traits: Traits) -> Iterator[tuple[str, Meaning]]:
    """Every entry with what it may mean: an axis and a trait's id, `gender` and `m` ..."""
    for kind, id, named in traits.named():
        yield from _translations(named.words, kind, id)
    for id, gender in traits.genders.items():
        yield from _translations(gender.faint_words, "faint_gender", id)
    for number, figure in enumerate(traits.figures):
        yield from ((name, Meaning("figure", str(number))) for name in figure.names)
    for kind, words in traits.vocabulary.words.items():
        yield from ((word, Meaning(kind)) for word in words)
    for language, words in traits.vocabulary.common.items():
        yield from ((word, Meaning("common", language)) for word in words)


def _translations(words: Mapping[str, Sequence[str]], kind: str, value: str) -> Iterator[tuple[str, Meaning]]:
    for language, translations in words.items():
        yield from ((word, Meaning(kind, value, language)) for word in translations)
