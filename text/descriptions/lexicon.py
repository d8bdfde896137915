"""Texts as words, and words by their meanings: the tables that `suggest` looks things up in.

    read(text, traits)     a text with the matches at every word

The time grows with the text alone: each different word costs as many look-ups as the longest entry has letters.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from contract.speech.routing import FALLBACK_LANGUAGE
from contract.voice_design.traits import Traits

_WORD = re.compile(r"[0-9]+|%|[^\W\d_]+(?:'[^\W\d_]+)*")
_CLAUSE = re.compile(r"[.,;:!?()\n\u2014]")
_BETWEEN = frozenset({"", "-", "\u2010", "\u2011", "\u2013", "'"})
_UMLAUTS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "æ": "ae", "ø": "oe"})

LONGEST_ENTRY = 24
"""Letters of a beginning or an ending, at most."""


class Word(NamedTuple):
    """A word of a text.

    Attributes:
        text: folded, see `fold`; a run of digits is a word too.
        is_capital: whether it was written with a capital.
        opens: a clause begins with it.
        is_joined: only a hyphen, or nothing, is between it and the word before.
    """

    text: str
    is_capital: bool
    opens: bool
    is_joined: bool


Meaning = tuple[str, str, str | None]
"""A kind and its value, as an axis and a trait's id or `gender` and `m`, and the language of the entry, if any."""


class Match(NamedTuple):
    """An entry that begins at a word of a text, with its meaning. It spans `length` words, `letters` of the first."""

    length: int
    letters: int
    kind: str
    value: str
    language: str | None


class ParsedText(NamedTuple):
    """A text, the entries that match at each of its words, and its language."""

    words: list[Word]
    matches: list[list[Match]]
    language: str

    def span(self, index: int, kind: str) -> int:
        """Words from `index` on that are an entry of a kind; 0 for none."""
        return max((m.length for place in self.matches[index : index + 1] for m in place if m.kind == kind), default=0)


def fold(text: str) -> str:
    """`text` in small letters, with `ae` for `ä` and `ss` for `ß`."""
    return unicodedata.normalize("NFC", text.casefold()).translate(_UMLAUTS)


def read(text: str, traits: Traits) -> ParsedText:
    """`text` as words with their meanings, but for those that a word has in another language only."""
    words = split(text)
    matches = _matches(words, traits)
    counts = dict.fromkeys(traits.vocabulary.wording, 0)
    for place in matches:
        for shown in {m.value if m.kind == "common" else m.language for m in place} & counts.keys():
            counts[str(shown)] += 1
    language = max(counts, key=lambda language: (counts[language], language == FALLBACK_LANGUAGE))
    others = ((other, row) for other, row in traits.vocabulary.false_friends.items() if other != language)
    foreign = {(other, fold(word)) for other, row in others for word in row}
    own = [
        [m for m in place if (m.language, word.text) not in foreign] for word, place in zip(words, matches, strict=True)
    ]
    return ParsedText(words, own, language)


def split(text: str) -> list[Word]:
    """The words of `text` in their order."""
    text = unicodedata.normalize("NFC", text).replace("\u2019", "'")
    words: list[Word] = []
    end = 0
    for match in _WORD.finditer(text):
        gap, end = text[end : match.start()], match.end()
        opens, is_joined = not words or _CLAUSE.search(gap) is not None, bool(words) and gap in _BETWEEN
        words.append(Word(fold(match[0]), match[0][0].isupper(), opens, is_joined))
    return words


@lru_cache(maxsize=4)
def _lexicon(traits: Traits) -> dict[str, list[tuple[int, str, Meaning]]]:
    """First word of an entry, as it is written, to the number of words, the text after the first, and the meaning.

    The last word of an entry may be the beginning of a word, those before it may not.
    """
    lexicon = defaultdict(list)
    for entry, meaning in entries(traits):
        first, *rest = fold(entry).split()
        lexicon[first].append((1 + len(rest), "".join(f" {part} " for part in rest).replace("- ", ""), meaning))
    return lexicon


def _matches(words: Sequence[Word], traits: Traits) -> list[list[Match]]:
    lexicon = _lexicon(traits)
    openings: dict[str, list[tuple[int, int, str, Meaning]]] = {}
    for word in {word.text for word in words}:
        places = [(len(word) + 1, word)]
        for letters in range(2, min(len(word), LONGEST_ENTRY) + 1):
            places += [(letters, f"{word[:letters]}-"), (letters, f"-{word[-letters:]}")]
        openings[word] = [(letters, *entry) for letters, first in places for entry in lexicon.get(first, ())]
    row = "".join(f" {word.text} " for word in words)
    ends = accumulate(len(word.text) + 2 for word in words)
    return [
        [Match(n, letters, *meaning) for letters, n, rest, meaning in openings[word.text] if row.startswith(rest, end)]
        for word, end in zip(words, ends, strict=True)
    ]


def entries(traits: Traits) -> Iterator[tuple[str, Meaning]]:
    """Every entry with each of its meanings."""
    tables: list[tuple[str, str, Mapping[str, Sequence[str]]]] = [
        *((kind, id, named.words) for kind, id, named in traits.named()),
        *(("faint_gender", id, gender.faint_words) for id, gender in traits.genders.items()),
    ]
    for kind, id, table in tables:
        yield from ((word, (kind, id, language)) for language, words in table.items() for word in words)
    yield from ((name, ("figure", str(n), None)) for n, figure in enumerate(traits.figures) for name in figure.names)
    yield from ((word, (kind, "", None)) for kind, words in traits.vocabulary.words.items() for word in words)
    yield from ((word, ("common", code, None)) for code, words in traits.vocabulary.common.items() for word in words)
