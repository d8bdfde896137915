"""What a description says: traits, gender, age and language, each with how much, or that it is not to be so.

    hear(text, traits) -> Heard

Words turn others round (`not too deep`), weigh them (`very`), or name somebody (`like ...`): names that the catalogue
knows become what is heard in that voice, others count for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from contract.speech.routing import FALLBACK_LANGUAGE
from contract.voice_design.ages import Age, ages
from contract.voice_design.lexicon import Match, Word, fold, words
from contract.voice_design.traits import AXES, Traits

STRONGER, PLAIN, WEAKER, BY_NAME = 2.0, 1.0, 0.5, 0.25
"""How much a finding counts: after `very`, as it is, after `slightly`, and where only a person was named."""

REACH = 4
"""Words that a negation reaches, fillers not counted."""

SAYS_SOMETHING = frozenset({*AXES, "age_group", "gender", "faint_gender", "language", "figure", "child", "voice"})

GENDERED = frozenset({"gender", "faint_gender"})

NO_NAME = frozenset({"gender", "age_group", "figure", "language", "voice", "common", "filler"})
"""What ends a name, or is known as one."""

ABOUT_AGES = frozenset({"before_age", "after_age", "no_age", "until"})
"""Words that count beside a number only (`ages`)."""


@dataclass(frozen=True, slots=True)
class Finding:
    """That `kind` (an axis, `gender`, `age_group` ...) is `value`, or is not."""

    kind: str
    value: str
    weight: float = PLAIN
    negated: bool = False


@dataclass(slots=True)
class Heard:
    """All findings, in order.

    Attributes:
        language: that the text is in.
        figure_years: age of a person who was named.
        names_people, names_accent: whether a person, or an accent, was named.
    """

    language: str
    findings: list[Finding] = field(default_factory=list)
    ages: list[Age] = field(default_factory=list)
    figure_years: int | None = None
    names_people: bool = False
    names_accent: bool = False

    def of(self, kind: str, *, negated: bool = False) -> list[Finding]:
        """The findings of a kind that are so, or that are not."""
        return [f for f in self.findings if f.kind == kind and f.negated == negated]


def hear(text: str, traits: Traits) -> Heard:
    """What `text` says, of at most some thousands of characters."""
    said = words(text)
    found = traits.lexicon.read(said)
    language = _language(found, traits)
    listener = _Listener(said, _without_false_friends(said, found, language, traits), traits, language)
    listener.listen()
    return listener.heard


def _language(found: Sequence[Sequence[Match]], traits: Traits) -> str:
    """The language that most of the words are of, which tells it."""
    counts = dict.fromkeys(traits.vocabulary.wording, 0)
    for matches in found:
        named = {m.meaning.value if m.meaning.kind == "common" else m.meaning.language for m in matches}
        for language in named & counts.keys():
            counts[str(language)] += 1
    most = max(counts.values())
    tied = [language for language, count in counts.items() if count == most]
    return FALLBACK_LANGUAGE if FALLBACK_LANGUAGE in tied else tied[0]


def _without_false_friends(
    said: Sequence[Word], found: Sequence[Sequence[Match]], language: str, traits: Traits
) -> list[Sequence[Match]]:
    """`found` without words that mean this only in texts of another language."""
    foreign = {
        (other, fold(word))
        for other, friends in traits.vocabulary.false_friends.items()
        if other != language
        for word in friends
    }
    suspects = {word for _, word in foreign}
    return [
        [match for match in matches if (match.meaning.language, word.text) not in foreign]
        if word.text in suspects
        else matches
        for word, matches in zip(said, found, strict=True)
    ]


class _Listener:
    """Goes through a text once, from word to word."""

    def __init__(self, said: Sequence[Word], found: Sequence[Sequence[Match]], traits: Traits, language: str) -> None:
        self.heard = Heard(language)
        self._said = said
        self._traits = traits
        self._found = found
        self._weight = PLAIN
        self._reach = 0
        # Where nearly everything is written with capitals they say nothing.
        self._has_names = 5 * sum(word.is_capital for word in said) < 4 * len(said)

    def listen(self) -> None:
        self.heard.ages = ages(self._said, self._found, self._traits.numbers)
        taken = {place for age in self.heard.ages for place in range(age.first, age.end)}
        place = 0
        while place < len(self._said):
            if self._said[place].opens:
                self._weight, self._reach = PLAIN, 0
            place += self._pass(place) if place in taken else self._step(place)

    def _pass(self, place: int) -> int:
        """Goes by a word of an age. Of whom it is may be heard in it: `Siebzigerin`."""
        self._weight = PLAIN
        said = [match for match in _longest(self._found[place]) if match.meaning.kind in GENDERED]
        for match in _best(said, self.heard.language):
            self._take(match, place)
        return 1

    def _step(self, place: int) -> int:
        """Takes in what begins at `place`, and says how many words it was."""
        matches = _longest(self._found[place])
        kinds = {match.meaning.kind for match in matches}
        length = matches[0].length if matches else 1
        self._turn(kinds)
        said = [match for match in matches if match.meaning.kind in SAYS_SOMETHING]
        for match in _best(said, self.heard.language):
            self._take(match, place)
        if "like" in kinds:
            length += self._name(place + length)
        elif said or not kinds:
            self._weight, self._reach = PLAIN, max(self._reach - 1, 0)
        return length

    def _turn(self, kinds: set[str]) -> None:
        """Words that change what the next ones mean."""
        if "negation" in kinds:
            self._reach = REACH
        elif kinds & {"end", "cancel"}:
            self._weight, self._reach = PLAIN, 0
        if "stronger" in kinds:
            self._weight = STRONGER
        elif "weaker" in kinds:
            self._weight = WEAKER

    def _take(self, match: Match, place: int) -> None:
        meaning, negated = match.meaning, self._reach > 0
        if meaning.kind == "faint_gender" and self._said[place].is_joined:
            return  # the end of `1980er`, no pronoun
        if meaning.kind == "gender":
            negated = self._reach == REACH  # `not a man`, but `not an old man` is one
        if meaning.kind == "figure":
            self._take_figure(int(meaning.value), negated)
        elif meaning.kind == "language" and self._is_accent(place + match.length):
            self.heard.names_accent = True
        else:
            self.heard.findings.append(Finding(meaning.kind, meaning.value, self._weight, negated))

    def _take_figure(self, number: int, negated: bool) -> None:
        self.heard.names_people = True
        if negated:
            return
        figure = self._traits.figures[number]
        self.heard.figure_years = self.heard.figure_years or figure.age_years
        about = {"gender": figure.gender, **figure.traits}
        self.heard.findings += [Finding(kind, value, BY_NAME) for kind, value in about.items()]

    def _is_accent(self, place: int) -> bool:
        return any(match.meaning.kind == "accent" for match in (self._found[place] if place < len(self._found) else ()))

    def _name(self, place: int) -> int:
        """How many words from `place` on are the name of somebody whom the catalogue does not know."""
        if not self._has_names:
            return 0
        end = place
        while end < len(self._said) and self._said[end].is_capital and not (end > place and self._said[end].opens):
            if any(match.meaning.kind in NO_NAME for match in self._found[end]):
                break
            end += 1
        # German writes every noun with a capital: one alone is no name.
        if end - place < (2 if self.heard.language == "de" else 1):
            return 0
        self.heard.names_people = True
        return end - place


def _longest(matches: Sequence[Match]) -> list[Match]:
    """Those that span most words, and say something about a voice or turn what does."""
    relevant = [match for match in matches if match.meaning.kind not in ABOUT_AGES | {"common"}]
    most = max((match.length for match in relevant), default=0)
    return [match for match in relevant if match.length == most]


def _best(matches: Sequence[Match], language: str) -> list[Match]:
    """One of each kind: in the language of the text if it can be, and with most letters."""
    best: dict[str, Match] = {}
    for match in sorted(matches, key=lambda match: (match.meaning.language in (None, language), match.letters)):
        best[match.meaning.kind] = match
    return list(best.values())
