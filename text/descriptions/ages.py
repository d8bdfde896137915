"""Ages in a description: `70-jährig`, `in her thirties`, `Mitte 40`, `forty-eight`, `30 bis 40`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from contract.limits import AGE_YEARS
from contract.voice_design.traits import AgeWords
from text.descriptions.lexicon import Match, Word, fold

YEARS_INTO_DECADE = 5
"""Somebody in the thirties is taken for 35."""
MOST_WORDS_BEFORE = 3
"""How many words before a number may belong to it, as in `Anfang der`."""


@dataclass(frozen=True, slots=True)
class Age:
    """An age, and the words from `first` up to `end` that say it. It is `sure` where it can be nothing else."""

    years: int
    sure: bool
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class _Number:
    value: int
    end: int
    is_decade: bool = False
    is_age: bool = False


class Numbers:
    """What the words of numbers are worth. `shifts` are words before a number, and the years that they add to it."""

    def __init__(self, vocabulary: AgeWords) -> None:
        units, teens, tens = (
            {fold(w): n for w, n in table.items()} for table in (vocabulary.units, vocabulary.teens, vocabulary.tens)
        )
        both = {f"{unit}und{ten}": u + t for unit, u in units.items() for ten, t in tens.items() if t < 100}
        self._tens, self._units = tens, units
        self._values = {**units, **teens, **tens, **both}
        endings = tuple(fold(ending) for ending in vocabulary.decade_endings)
        self._endings = frozenset(endings)
        self._decades = {ten + ending: t for ten, t in tens.items() for ending in endings}
        self._decades |= {ten[:-1] + "ies": t for ten, t in tens.items() if ten.endswith("y")}
        self.shifts = {fold(word): years for word, years in vocabulary.shifts.items()}
        self._prefixes = {fold(prefix): years for prefix, years in vocabulary.prefixes.items()}

    def at(self, words: Sequence[Word], index: int) -> _Number | None:
        """The number that begins at an index, None where there is none."""
        word = words[index].text
        follower = words[index + 1] if index + 1 < len(words) else None
        if word.isdecimal() and len(word) > 3:
            return None
        value = int(word) if word.isdecimal() else self._tens.get(word)
        if value is not None and follower is not None and follower.is_joined and follower.text in self._endings:
            return _Number(value, index + 2, is_decade=True)
        if word.isdecimal():
            return _Number(int(word), index + 1)
        if word in self._tens and follower is not None and follower.text in self._units:
            return _Number(self._tens[word] + self._units[follower.text], index + 2)
        return self._spelled(word, index + 1)

    def _spelled(self, word: str, end: int) -> _Number | None:
        if word in self._values:
            return _Number(self._values[word], end)
        if word in self._decades:
            return _Number(self._decades[word], end, is_decade=True)
        for prefix, years in self._prefixes.items():
            if (decade := self._decades.get(word.removeprefix(prefix))) and word.startswith(prefix):
                return _Number(decade + years, end)
        number, joint, _ = word.partition("jaehr")
        if joint and (value := self._values.get(number)):
            return _Number(value, end, is_age=True)
        return None


def ages(words: Sequence[Word], matches: Sequence[Sequence[Match]], numbers: Numbers) -> list[Age]:
    """Every age in a text, in order; `matches` is what its words may mean."""
    result: list[Age] = []
    index = 0
    while index < len(words):
        number = numbers.at(words, index)
        age = number and _age(words, matches, index, number, numbers)
        if age:
            result.append(age)
        index = age.end if age else number.end if number else index + 1
    return result


def _age(
    words: Sequence[Word],
    matches: Sequence[Sequence[Match]],
    index: int,
    number: _Number,
    numbers: Numbers,
) -> Age | None:
    years, end, is_range = _range(words, matches, number, numbers)
    if _span(matches, index + 1, "no_age") or _span(matches, end, "no_age"):
        return None
    first, shift, is_marked = _before(words, matches, index, numbers)
    after = _span(matches, end, "after_age")
    sure = bool(number.is_age or after or is_marked)
    years += shift
    if number.is_decade and not is_range and not shift:
        years += YEARS_INTO_DECADE
    low, high = AGE_YEARS
    if not sure and not low <= years <= high:
        return None
    return Age(years, sure or number.is_decade or shift != 0, first, end + after)


def _range(
    words: Sequence[Word], matches: Sequence[Sequence[Match]], number: _Number, numbers: Numbers
) -> tuple[int, int, bool]:
    """Years, the end, and whether two numbers say them."""
    index = number.end
    if index < len(words) and not words[index].is_joined:
        index += _span(matches, index, "until")
    if index < len(words) and (index > number.end or words[index].is_joined):
        other = numbers.at(words, index)
        if other and number.value < other.value <= 100 and number.value >= 10:
            return (number.value + other.value) // 2, other.end, True
    return number.value, number.end, False


def _before(
    words: Sequence[Word], matches: Sequence[Sequence[Match]], index: int, numbers: Numbers
) -> tuple[int, int, bool]:
    """Where the age begins, the years that words before it add, and whether they say that it is one."""
    for first in range(index - 1, max(index - 1 - MOST_WORDS_BEFORE, -1), -1):
        if words[first + 1].opens:
            break
        word = words[first].text
        if word in numbers.shifts:
            return first, numbers.shifts[word], False
        if _span(matches, first, "before_age"):
            return first, 0, True
        if not _span(matches, first, "filler"):
            break
    return index, 0, False


def _span(matches: Sequence[Sequence[Match]], index: int, kind: str) -> int:
    """How many words from an index on are of a kind; 0 for none."""
    place = matches[index] if index < len(matches) else ()
    return max((match.length for match in place if match.meaning.kind == kind), default=0)
