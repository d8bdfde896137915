"""Ages in a description: `70-jährig`, `in her thirties`, `Mitte 40`, `forty-eight`, `30 bis 40`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from contract.limits import AGE_YEARS
from contract.voice_design.traits import AgeWords
from text.descriptions.lexicon import ParsedText, Word, fold

YEARS_INTO_DECADE = 5
"""A person in the thirties is taken for 35."""
MOST_WORDS_BEFORE = 3
"""Words before a number that may belong to it, as in `Anfang der`."""


class Age(NamedTuple):
    """An age, and the words from `first` up to `end` that say it. It is `sure` where it can be nothing else."""

    years: int
    sure: bool
    first: int
    end: int


class _Number(NamedTuple):
    value: int
    length: int = 1
    is_decade: bool = False
    is_age: bool = False


class Numbers:
    """Values of the words for numbers. `shifts` are words before a number, and the years that they add to it."""

    def __init__(self, vocabulary: AgeWords) -> None:
        tables = (vocabulary.units, vocabulary.teens, vocabulary.tens, vocabulary.shifts, vocabulary.prefixes)
        self._units, teens, self._tens, self.shifts, prefixes = ({fold(w): n for w, n in t.items()} for t in tables)
        self._endings = {fold(ending) for ending in vocabulary.decade_endings}
        both = {f"{unit}und{ten}": u + t for unit, u in self._units.items() for ten, t in self._tens.items() if t < 100}
        self._plain = self._units | teens | self._tens | both
        decades = {ten + ending: t for ten, t in self._tens.items() for ending in self._endings}
        decades |= {ten[:-1] + "ies": t for ten, t in self._tens.items() if ten.endswith("y")}
        parts = ((prefix + decade, years + t) for prefix, years in prefixes.items() for decade, t in decades.items())
        self._spelled = {word: _Number(value) for word, value in parts}
        self._spelled |= {decade: _Number(t, is_decade=True) for decade, t in decades.items()}
        self._spelled |= {word: _Number(value) for word, value in self._plain.items()}

    def at(self, words: Sequence[Word], index: int) -> _Number | None:
        """The number that begins at an index, None where there is none."""
        word, follower = (*(word.text for word in words[index : index + 2]), "", "")[:2]
        number = _Number(int(word)) if word.isdecimal() and len(word) <= 3 else self._spelled.get(word)
        is_ten = word in self._tens
        if number and (is_ten or word.isdecimal()) and follower in self._endings and words[index + 1].is_joined:
            return _Number(number.value, 2, is_decade=True)
        if number and is_ten and follower in self._units:
            return _Number(number.value + self._units[follower], 2)
        before, joint, _ = word.partition("jaehr")
        return number or (_Number(self._plain[before], is_age=True) if joint and before in self._plain else None)


def ages(text: ParsedText, numbers: Numbers) -> list[Age]:
    """Every age in a text, in order."""
    result: list[Age] = []
    index = 0
    while index < len(text.words):
        number = numbers.at(text.words, index)
        index += number.length if number else 1
        if number and (age := _age(text, index - number.length, number, numbers)):
            result.append(age)
            index = age.end
    return result


def _age(text: ParsedText, index: int, number: _Number, numbers: Numbers) -> Age | None:
    years, end = number.value, index + number.length
    is_joined = end < len(text.words) and text.words[end].is_joined
    until = 0 if is_joined else text.span(end, "until")
    other = numbers.at(text.words, end + until) if is_joined or until else None
    is_range = other is not None and 10 <= years < other.value <= 100
    if other and is_range:
        years, end = (years + other.value) // 2, end + until + other.length
    if text.span(index + 1, "no_age") or text.span(end, "no_age"):
        return None
    first, shift, is_marked = _before(text, index, numbers)
    after = text.span(end, "after_age")
    years += shift or (YEARS_INTO_DECADE if number.is_decade and not is_range else 0)
    sure = bool(number.is_age or after or is_marked)
    if not sure and not AGE_YEARS[0] <= years <= AGE_YEARS[1]:
        return None
    return Age(years, sure or number.is_decade or shift != 0, first, end + after)


def _before(text: ParsedText, index: int, numbers: Numbers) -> tuple[int, int, bool]:
    """The first word of the age, the years that words before it add, and if they say that it is one."""
    for first in range(index - 1, max(index - 1 - MOST_WORDS_BEFORE, -1), -1):
        if text.words[first + 1].opens:
            break
        if shift := numbers.shifts.get(text.words[first].text):
            return first, shift, False
        if text.span(first, "before_age"):
            return first, 0, True
        if not text.span(first, "filler"):
            break
    return index, 0, False
