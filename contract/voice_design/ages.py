"""Ages in a description: `70-jährig`, `in her thirties`, `Mitte 40`, `forty-eight`, `30 bis 40`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from contract.limits import AGE_YEARS
from contract.voice_design.lexicon import Match, Word, fold
from contract.voice_design.vocabulary import AgeWords

YEARS_INTO_A_DECADE = 5
"""Of somebody in the thirties."""
LOOK_BACK = 3
"""Words between `Anfang` and its number, at most."""


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
    """What the words of numbers are worth.

    Attributes:
        shifts: words before a number, folded, and the years that they add to it.
    """

    def __init__(self, words: AgeWords) -> None:
        units, teens, tens = (
            {fold(w): n for w, n in table.items()} for table in (words.units, words.teens, words.tens)
        )
        both = {f"{unit}und{ten}": u + t for unit, u in units.items() for ten, t in tens.items() if t < 100}
        self._tens, self._units = tens, units
        self._values = {**teens, **tens, **both}
        endings = tuple(fold(ending) for ending in words.decade_endings)
        self._endings = frozenset(endings)
        self._decades = {ten + ending: t for ten, t in tens.items() for ending in endings}
        self._decades |= {ten[:-1] + "ies": t for ten, t in tens.items() if ten.endswith("y")}
        self.shifts = {fold(word): years for word, years in words.shifts.items()}
        self._prefixes = {fold(prefix): years for prefix, years in words.prefixes.items()}

    def at(self, text: Sequence[Word], place: int) -> _Number | None:
        """The number that begins at a place, None where there is none."""
        word = text[place].text
        follower = text[place + 1] if place + 1 < len(text) else None
        if word.isdecimal() and len(word) > 3:
            return None
        value = int(word) if word.isdecimal() else self._tens.get(word)
        if value is not None and follower is not None and follower.is_joined and follower.text in self._endings:
            return _Number(value, place + 2, is_decade=True)
        if word.isdecimal():
            return _Number(int(word), place + 1)
        if word in self._tens and follower is not None and follower.text in self._units:
            return _Number(self._tens[word] + self._units[follower.text], place + 2)
        return self._spelled(word, place + 1)

    def _spelled(self, word: str, end: int) -> _Number | None:
        if word in self._values:
            return _Number(self._values[word], end)
        if word in self._units:
            return _Number(self._units[word], end)
        if word in self._decades:
            return _Number(self._decades[word], end, is_decade=True)
        for prefix, years in self._prefixes.items():
            if (decade := self._decades.get(word.removeprefix(prefix))) and word.startswith(prefix):
                return _Number(decade + years, end)
        number, joint, _ = word.partition("jaehr")
        if joint and (value := self._values.get(number) or self._units.get(number)):
            return _Number(value, end, is_age=True)
        return None


def ages(text: Sequence[Word], found: Sequence[Sequence[Match]], numbers: Numbers) -> list[Age]:
    """Every age in `text`, in order; `found` is what its words may mean."""
    heard, place = [], 0
    while place < len(text):
        number = numbers.at(text, place)
        age = number and _age(text, found, place, number, numbers)
        if age:
            heard.append(age)
        place = age.end if age else number.end if number else place + 1
    return heard


def _age(
    text: Sequence[Word],
    found: Sequence[Sequence[Match]],
    place: int,
    number: _Number,
    numbers: Numbers,
) -> Age | None:
    years, end, is_range = _range(text, found, number, numbers)
    if _span(found, place + 1, "no_age") or _span(found, end, "no_age"):
        return None
    first, shift, is_said = _before(text, found, place, numbers)
    after = _span(found, end, "after_age")
    sure = bool(number.is_age or after or is_said)
    years += shift
    if number.is_decade and not is_range and not shift:
        years += YEARS_INTO_A_DECADE
    low, high = AGE_YEARS
    if not sure and not low <= years <= high:
        return None
    return Age(years, sure or number.is_decade or shift != 0, first, end + after)


def _range(
    text: Sequence[Word], found: Sequence[Sequence[Match]], number: _Number, numbers: Numbers
) -> tuple[int, int, bool]:
    """Years, the end, and whether two numbers say them."""
    place = number.end
    if place < len(text) and not text[place].is_joined:
        place += _span(found, place, "until")
    if place < len(text) and (place > number.end or text[place].is_joined):
        other = numbers.at(text, place)
        if other and number.value < other.value <= 100 and number.value >= 10:
            return (number.value + other.value) // 2, other.end, True
    return number.value, number.end, False


def _before(
    text: Sequence[Word], found: Sequence[Sequence[Match]], place: int, numbers: Numbers
) -> tuple[int, int, bool]:
    """Where the age begins, the years that words before it add, and whether they say that it is one."""
    for first in range(place - 1, max(place - 1 - LOOK_BACK, -1), -1):
        if text[first + 1].opens:
            break
        word = text[first].text
        if word in numbers.shifts:
            return first, numbers.shifts[word], False
        if _span(found, first, "before_age"):
            return first, 0, True
        if not _span(found, first, "filler"):
            break
    return place, 0, False


def _span(found: Sequence[Sequence[Match]], place: int, kind: str) -> int:
    """How many words from a place on are of a kind; 0 for none."""
    return max(_lengths(found, place, kind), default=0)


def _lengths(found: Sequence[Sequence[Match]], place: int, kind: str) -> Iterator[int]:
    if place < len(found):
        yield from (match.length for match in found[place] if match.meaning.kind == kind)
