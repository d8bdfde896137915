"""Traits from a free description of a voice, in German or English, by tables of words: no engine runs.

    suggest(text, traits) -> SuggestReply

Everything in the reply is in our words (`configs/catalog/suggest.toml`); nothing of `text` is repeated or kept, so no
name of a person is. What is not said is taken as plain, and a hint says so.
"""

from __future__ import annotations

from contract.limits import AGE_YEARS
from contract.voice_design.hearing import BY_NAME, PLAIN, STRONGER, WEAKER, Finding, Heard, hear
from contract.voice_design.replies import SuggestReply
from contract.voice_design.traits import AXES, Axis, Gender, Named, Trait, Traits
from contract.voice_design.vocabulary import Wording

HINTS = 3
ASSUMED_YEARS = 40
ASSUMED_GENDER: Gender = "f"
TORN_YEARS = 10
"""Ages that are as far apart as this contradict each other."""


def suggest(text: str, traits: Traits) -> SuggestReply:
    """Traits for an order of the voice that `text` describes. Equal texts give equal replies."""
    heard = hear(text, traits)
    choice = _Choice(heard, traits)
    gender, age_years = choice.gender(), choice.age_years()
    chosen = {axis: choice.trait(axis) for axis in AXES}
    language = choice.language()
    return {
        "gender": gender,
        "age_years": age_years,
        "language": language,
        "timbre": chosen["timbre"].id,
        "character": chosen["character"].id,
        "tempo": chosen["tempo"].id,
        "use_case": chosen["use_case"].id,
        "name": traits.name(gender, age_years, (chosen["timbre"], chosen["character"]), heard.language),
        "reason": choice.reason(),
        "hints": choice.hints(),
    }


class _Choice:
    """Decides among what was heard, one thing after the other, and keeps what is to be said about it.

    What is assumed is said last: there is room for a few hints only.
    """

    def __init__(self, heard: Heard, traits: Traits) -> None:
        self._heard = heard
        self._traits = traits
        self._wording: Wording = traits.vocabulary.wording[heard.language]
        self._says: list[str] = []
        self._torn: list[str] = []
        self._assumed: list[str] = []
        self._silent: list[str] = []

    def gender(self) -> Gender:
        named, denied = self._heard.of("gender"), self._heard.of("gender", negated=True)
        faint = [f for f in self._heard.of("faint_gender") if f.value != self._grammatical()]
        if found := named or faint:
            woman, man = (sum(f.weight for f in found if f.value == gender) for gender in ("f", "m"))
            gender: Gender = "m" if man > woman or (man == woman and found[0].value == "m") else "f"
        elif denied:
            gender = "m" if denied[0].value == "f" else "f"
        else:
            gender = ASSUMED_GENDER
        label = self._label(self._traits.genders[gender])
        if not found and not denied:
            self._assumed.append(self._wording.no_gender.format(gender=label))
            return gender
        if len({f.value for f in named if f.weight > BY_NAME}) > 1:
            self._torn.append(self._wording.gender_torn.format(gender=label))
        self._says.append(label)
        return gender

    def age_years(self) -> int:
        """The age that is said in figures, else by words, else that of somebody who was named, else an assumed one."""
        low, high = AGE_YEARS
        ages, groups = sorted(self._heard.ages, key=lambda age: not age.sure), self._heard.of("age_group")
        group = max(groups, key=lambda finding: finding.weight, default=None)
        if ages:
            years = ages[0].years
            if max(age.years for age in ages) - min(age.years for age in ages) >= TORN_YEARS:
                self._torn.append(self._wording.age_torn.format(years=min(max(years, low), high)))
        elif group:
            years = self._traits.age_groups[group.value].middle_years
        elif self._heard.of("child"):
            years = low - 1
        elif self._heard.figure_years:
            years = self._heard.figure_years
        else:
            self._assumed.append(self._wording.no_age.format(years=ASSUMED_YEARS))
            return ASSUMED_YEARS
        allowed = min(max(years, low), high)
        if allowed != years:
            self._torn.append(self._wording.age_limits.format(low=low, high=high, years=allowed))
        self._says.append(self._wording.about_years.format(years=allowed))
        return allowed

    def trait(self, axis: Axis) -> Trait:
        """The trait that was heard most, moved by its degree; the plain one where none was."""
        entries = self._traits.axes[axis]
        denied = [finding.value for finding in self._heard.of(axis, negated=True)]
        found = [finding for finding in self._heard.of(axis) if finding.value not in denied]
        self._says += [self._wording.without.format(trait=self._label(entries[id])) for id in dict.fromkeys(denied)]
        if not found:
            trait = next(t for t in sorted(entries.values(), key=lambda t: not t.is_plain) if t.id not in denied)
            if not denied:
                self._silent.append(self._label(trait))
            return trait
        # The first of the weightiest.
        best = max(found, key=lambda finding: finding.weight)
        trait = self._moved(axis, best)
        self._says.append(self._label(trait))
        self._compare(axis, best, found)
        return trait

    def language(self) -> str:
        """The language that is named, else the one that the text is in."""
        named = self._heard.of("language")
        if not named:
            return self._heard.language
        self._says.append(self._label(self._traits.languages[named[0].value]))
        return named[0].value

    def reason(self) -> str:
        return self._wording.heard.format(traits=", ".join(self._says)) if self._says else self._wording.nothing

    def hints(self) -> list[str]:
        people = [self._wording.people] if self._heard.names_people else []
        accent = [self._wording.accent] if self._heard.names_accent else []
        silent = [self._wording.silent.format(traits=", ".join(self._silent))] if self._silent else []
        return [*people, *self._torn, *self._assumed, *accent, *silent][:HINTS]

    def _moved(self, axis: Axis, finding: Finding) -> Trait:
        """One step outwards on a scale for `very`, one step inwards for `slightly`, but never to the plain one."""
        scale = _scale(self._traits.axes[axis])
        trait = self._traits.axes[axis][finding.value]
        if _effect(trait) == 0 or finding.weight not in (STRONGER, WEAKER):
            return trait
        outwards = (1 if _effect(trait) > 0 else -1) * (1 if finding.weight > PLAIN else -1)
        place = scale.index(trait) + outwards
        moved = scale[min(max(place, 0), len(scale) - 1)]
        return trait if moved.is_plain else moved

    def _compare(self, axis: Axis, best: Finding, found: list[Finding]) -> None:
        """Says so where both ends of a scale were heard."""
        entries = self._traits.axes[axis]
        for other in found:
            if other.weight > BY_NAME and _effect(entries[other.value]) * _effect(entries[best.value]) < 0:
                one, two = self._label(entries[best.value]), self._label(entries[other.value])
                self._torn.append(self._wording.trait_torn.format(one=one, other=two))
                return

    def _grammatical(self) -> Gender | None:
        """The gender of the word for `voice`, where pronouns may mean the voice and nobody in particular."""
        says_voice = self._heard.of("voice") or self._heard.of("voice", negated=True)
        return self._traits.vocabulary.voice_gender.get(self._heard.language) if says_voice else None

    def _label(self, named: Named) -> str:
        return named.label(self._heard.language)


def _effect(trait: Trait) -> float:
    """Which end of its scale a trait is at: below 0, above, or 0 where it is at none."""
    return trait.semitones or trait.speed - 1


def _scale(entries: dict[str, Trait]) -> list[Trait]:
    return sorted(entries.values(), key=_effect)
