"""What a description says: traits, gender, age and language, each with a weight, or negated.

    find(text, traits) -> DescriptionFindings

Some words negate others (`not too deep`), weigh them (`very`) or name a person (`like ...`). A person whom the
catalogue knows stands for the traits of that voice; other names count for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from contract.speech.routing import FALLBACK_LANGUAGE
from contract.voice_design.traits import AXES, Traits
from text.descriptions.ages import Age, Numbers, ages
from text.descriptions.lexicon import Lexicon, Match, Word, fold, split

STRONGER, PLAIN, WEAKER, BY_NAME = 2.0, 1.0, 0.5, 0.25
"""Weights of a finding: after `very`, without a degree, after `slightly`, and where only a person was named."""

NEGATION_WORDS = 4
"""How many words a negation reaches; fillers do not count."""

FINDING_KINDS = frozenset({*AXES, "age_group", "gender", "faint_gender", "language", "figure", "child", "voice"})

GENDER_KINDS = frozenset({"gender", "faint_gender"})

NAME_ENDS = frozenset({"gender", "age_group", "figure", "language", "voice", "common", "filler"})
"""Kinds of words that are no part of an unknown name."""

AGE_KINDS = frozenset({"before_age", "after_age", "no_age", "until"})
"""Kinds of words that count beside a number only (`ages`)."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The description says that `kind` (an axis, `gender`, `age_group` ...) is `value`, or is not."""

    kind: str
    value: str
    weight: float = PLAIN
    negated: bool = False


@dataclass(slots=True)
class DescriptionFindings:
    """All findings, in the order of the text, and its language.

    `figure_years` is the age of a person who was named.
    """

    language: str
    findings: list[Finding] = field(default_factory=list)
    ages: list[Age] = field(default_factory=list)
    figure_years: int | None = None
    names_people: bool = False
    names_accent: bool = False

    def of(self, kind: str, *, negated: bool = False) -> list[Finding]:
        """The findings of one kind, either those that are negated or those that are not."""
        return [f for f in self.findings if f.kind == kind and f.negated == negated]


def find(text: str, traits: Traits) -> DescriptionFindings:
    """What `text` says; it has at most some thousands of characters."""
    lexicon, numbers = _tables(traits)
    words = split(text)
    matches = lexicon.read(words)
    language = _language(matches, traits)
    scan = _Scan(words, _without_false_friends(words, matches, language, traits), traits, language)
    scan.run(numbers)
    return scan.result


@lru_cache(maxsize=4)
def _tables(traits: Traits) -> tuple[Lexicon, Numbers]:
    return Lexicon.of(traits), Numbers(traits.vocabulary.ages)


def _language(matches: Sequence[Sequence[Match]], traits: Traits) -> str:
    """The language of most of the words that show one."""
    counts = dict.fromkeys(traits.vocabulary.wording, 0)
    for meanings in ([match.meaning for match in place] for place in matches):
        languages = {meaning.value if meaning.kind == "common" else meaning.language for meaning in meanings}
        for language in languages & counts.keys():
            counts[str(language)] += 1
    most = max(counts.values())
    tied = [language for language, count in counts.items() if count == most]
    return FALLBACK_LANGUAGE if FALLBACK_LANGUAGE in tied else tied[0]


def _without_false_friends(
    words: Sequence[Word], matches: Sequence[Sequence[Match]], language: str, traits: Traits
) -> list[Sequence[Match]]:
    """`matches` without words that have their meaning only in texts of another language."""
    foreign = {
        (other, fold(word))
        for other, friends in traits.vocabulary.false_friends.items()
        if other != language
        for word in friends
    }
    return [
        [match for match in place if (match.meaning.language, word.text) not in foreign]
        for word, place in zip(words, matches, strict=True)
    ]


class _Scan:
    """One pass over the words of a text; `result` grows with it."""

    def __init__(
        self, words: Sequence[Word], matches: Sequence[Sequence[Match]], traits: Traits, language: str
    ) -> None:
        self.result = DescriptionFindings(language)
        self._words = words
        self._matches = matches
        self._traits = traits
        self._weight = PLAIN
        self._negated_words = 0
        # Where nearly everything is written with capitals they mark no names.
        self._has_names = 5 * sum(word.is_capital for word in words) < 4 * len(words)

    def run(self, numbers: Numbers) -> None:
        self.result.ages = ages(self._words, self._matches, numbers)
        in_ages = {index for age in self.result.ages for index in range(age.first, age.end)}
        index = 0
        while index < len(self._words):
            if self._words[index].opens:
                self._weight, self._negated_words = PLAIN, 0
            index += self._step_over_age(index) if index in in_ages else self._step(index)

    def _step_over_age(self, index: int) -> int:
        """Passes a word of an age, which may name a gender as well: `Siebzigerin`."""
        self._weight = PLAIN
        for match in self._best(_longest(self._matches[index]), GENDER_KINDS):
            self._add(match, index)
        return 1

    def _step(self, index: int) -> int:
        """Adds what begins at `index`, and returns how many words that is."""
        matches = _longest(self._matches[index])
        kinds = {match.meaning.kind for match in matches}
        length = matches[0].length if matches else 1
        self._modify(kinds)
        best = self._best(matches, FINDING_KINDS)
        for match in best:
            self._add(match, index)
        if "like" in kinds:
            length += self._unknown_name(index + length)
        elif best or not kinds:
            self._weight, self._negated_words = PLAIN, max(self._negated_words - 1, 0)
        return length

    def _modify(self, kinds: set[str]) -> None:
        """Applies words that change the meaning of the next ones."""
        if "negation" in kinds:
            self._negated_words = NEGATION_WORDS
        elif kinds & {"end", "cancel"}:
            self._weight, self._negated_words = PLAIN, 0
        if "stronger" in kinds:
            self._weight = STRONGER
        elif "weaker" in kinds:
            self._weight = WEAKER

    def _best(self, matches: Sequence[Match], kinds: frozenset[str]) -> list[Match]:
        """One match of each of `kinds`: in the language of the text if there is one, and with most letters."""
        languages = (None, self.result.language)
        best: dict[str, Match] = {}
        for match in sorted(matches, key=lambda match: (match.meaning.language in languages, match.letters)):
            if match.meaning.kind in kinds:
                best[match.meaning.kind] = match
        return list(best.values())

    def _add(self, match: Match, index: int) -> None:
        meaning, negated = match.meaning, self._negated_words > 0
        if meaning.kind == "faint_gender" and self._words[index].is_joined:
            return  # the end of `1980er`, no pronoun
        if meaning.kind == "gender":
            negated = self._negated_words == NEGATION_WORDS  # `not a man`, but `not an old man` is one
        if meaning.kind == "figure":
            self._add_figure(int(meaning.value), negated)
        elif meaning.kind == "language" and self._is_accent(index + match.length):
            self.result.names_accent = True
        else:
            self.result.findings.append(Finding(meaning.kind, meaning.value, self._weight, negated))

    def _add_figure(self, number: int, negated: bool) -> None:
        self.result.names_people = True
        if negated:
            return
        figure = self._traits.figures[number]
        self.result.figure_years = self.result.figure_years or figure.age_years
        values = {"gender": figure.gender, **figure.traits}
        self.result.findings += [Finding(kind, value, BY_NAME) for kind, value in values.items()]

    def _is_accent(self, index: int) -> bool:
        return any(match.meaning.kind == "accent" for place in self._matches[index : index + 1] for match in place)

    def _unknown_name(self, index: int) -> int:
        """How many words from `index` on are the name of a person whom the catalogue does not know."""
        if not self._has_names:
            return 0
        end = index
        while end < len(self._words) and self._words[end].is_capital and not (end > index and self._words[end].opens):
            if any(match.meaning.kind in NAME_ENDS for match in self._matches[end]):
                break
            end += 1
        # German writes every noun with a capital: one alone is no name.
        if end - index < (2 if self.result.language == "de" else 1):
            return 0
        self.result.names_people = True
        return end - index


def _longest(matches: Sequence[Match]) -> list[Match]:
    """The matches that span most words; words about ages and languages alone do not count."""
    relevant = [match for match in matches if match.meaning.kind not in AGE_KINDS | {"common"}]
    most = max((match.length for match in relevant), default=0)
    return [match for match in relevant if match.length == most]
