"""Traits, gender, age and language in a description, each with a weight, or negated: Findings(text, traits).

Some words negate others (`not too deep`), weigh them (`very`) or name a person (`like ...`). A person whom the
catalogue knows stands for the traits of that voice; other names count for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import takewhile
from typing import NamedTuple

from contract.voice_design.traits import AXES, Traits
from text.descriptions.ages import Numbers, ages
from text.descriptions.lexicon import Match, read

STRONGER, PLAIN, WEAKER, BY_NAME = 2.0, 1.0, 0.5, 0.25
"""Weights of a finding: after `very`, without a degree, after `slightly`, and where only a person was named."""

NEGATION_WORDS = 4
"""Words that a negation reaches; fillers do not count."""

FINDING_KINDS = frozenset({*AXES, "age_group", "gender", "faint_gender", "language", "figure", "child", "voice"})

GENDER_KINDS = frozenset({"gender", "faint_gender"})

NAME_ENDS = frozenset({"gender", "age_group", "figure", "language", "voice", "common", "filler"})
"""Kinds of words that are no part of an unknown name."""

AGE_KINDS = frozenset({"before_age", "after_age", "no_age", "until"})
"""Kinds of words that count beside a number only (`ages`)."""


class Finding(NamedTuple):
    """The description says that `kind` (an axis, `gender`, `age_group` ...) is `value`, or is not."""

    kind: str
    value: str
    weight: float
    negated: bool = False


class Findings:
    """One pass over the words of a text of at most some thousands of characters.

    Attributes:
        language: of the text.
        ages: in the order of the text.
        figure_years: the age of a person who was named, 0 without one.
        names_people, names_accent: the text does.
    """

    def __init__(self, text: str, traits: Traits) -> None:
        self._text = read(text, traits)
        self._traits = traits
        self._findings: list[Finding] = []
        self._weight, self._negated_words = PLAIN, 0
        self.language = self._text.language
        self.ages = ages(self._text, _numbers(traits))
        self.figure_years = 0
        self.names_people = self.names_accent = False
        # Where nearly everything is written with capitals they mark no names.
        self._has_names = 5 * sum(word.is_capital for word in self._text.words) < 4 * len(self._text.words)
        in_ages = {index for age in self.ages for index in range(age.first, age.end)}
        index = 0
        while index < len(self._text.words):
            if self._text.words[index].opens:
                self._weight, self._negated_words = PLAIN, 0
            matches = _longest(self._text.matches[index])
            if index in in_ages:
                self._weight = PLAIN
                self._add(matches, index, GENDER_KINDS)  # `Siebzigerin`
                index += 1
            else:
                index += self._step(matches, index)

    def of(self, kind: str, *, negated: bool = False) -> list[Finding]:
        """The findings of one kind, either those that are negated or those that are not."""
        return [f for f in self._findings if f.kind == kind and f.negated == negated]

    def _step(self, matches: Sequence[Match], index: int) -> int:
        """Adds what begins at `index`, and returns how many words that is."""
        kinds = {match.kind for match in matches}
        length = matches[0].length if matches else 1
        if "negation" in kinds:
            self._negated_words = NEGATION_WORDS
        elif kinds & {"end", "cancel"}:
            self._weight, self._negated_words = PLAIN, 0
        if kinds & {"stronger", "weaker"}:
            self._weight = STRONGER if "stronger" in kinds else WEAKER
        self._add(matches, index, FINDING_KINDS)
        if "like" in kinds:
            length += self._unknown_name(index + length)
        elif kinds & FINDING_KINDS or not kinds:
            self._weight, self._negated_words = PLAIN, max(self._negated_words - 1, 0)
        return length

    def _add(self, matches: Sequence[Match], index: int, kinds: frozenset[str]) -> None:
        """Adds one match of each of `kinds`: in the language of the text if there is one, and with most letters."""
        own_last = sorted(matches, key=lambda match: (match.language in (None, self.language), match.letters))
        for kind, match in {match.kind: match for match in own_last if match.kind in kinds}.items():
            negated = self._negated_words > 0
            if kind == "faint_gender" and self._text.words[index].is_joined:
                continue  # the end of `1980er`, no pronoun
            if kind == "gender":
                negated = self._negated_words == NEGATION_WORDS  # `not a man`, but `not an old man` is one
            if kind == "figure":
                self.names_people = True
                if not negated:
                    figure = self._traits.figures[int(match.value)]
                    self.figure_years = self.figure_years or figure.age_years
                    values = {"gender": figure.gender, **figure.traits}
                    self._findings += [Finding(field, value, BY_NAME) for field, value in values.items()]
            elif kind == "language" and self._text.span(index + match.length, "accent"):
                self.names_accent = True
            else:
                self._findings.append(Finding(kind, match.value, self._weight, negated))

    def _unknown_name(self, start: int) -> int:
        """Words from `start` on that are the name of a person whom the catalogue does not know."""
        words = self._text.words

        def continues(index: int) -> bool:
            is_inside = words[index].is_capital and not (index > start and words[index].opens)
            return is_inside and all(match.kind not in NAME_ENDS for match in self._text.matches[index])

        length = len(list(takewhile(continues, range(start, len(words))))) if self._has_names else 0
        # German writes every noun with a capital: one alone is no name.
        if length < (2 if self.language == "de" else 1):
            return 0
        self.names_people = True
        return length


@lru_cache(maxsize=4)
def _numbers(traits: Traits) -> Numbers:
    return Numbers(traits.vocabulary.ages)


def _longest(matches: Sequence[Match]) -> list[Match]:
    """The matches that span most words; words about ages and languages alone do not count."""
    relevant = [match for match in matches if match.kind not in AGE_KINDS | {"common"}]
    most = max((match.length for match in relevant), default=0)
    return [match for match in relevant if match.length == most]
