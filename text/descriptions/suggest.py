"""Traits from a free description of a voice, in German or English, by tables of words: no engine runs.

    suggest(text, traits) -> SuggestReply

Everything in the reply is worded by `configs/catalog/suggest.toml`; nothing of `text` is repeated or stored, so no name
of a person is. Where the description says nothing the plain trait is taken, and a hint says so.
"""

from __future__ import annotations

from contract.limits import AGE_YEARS
from contract.voice_design.replies import SuggestReply
from contract.voice_design.traits import AXES, Axis, Gender, Named, Trait, Traits
from text.descriptions.findings import BY_NAME, PLAIN, STRONGER, WEAKER, Finding, Findings

HINTS = 3
ASSUMED_YEARS = 40
ASSUMED_GENDER: Gender = "f"
CONFLICT_YEARS = 10
"""From this distance on two ages contradict each other."""


def suggest(text: str, traits: Traits) -> SuggestReply:
    """Traits for an order of the voice that `text` describes. Equal texts give equal replies."""
    choice = _Choice(Findings(text, traits), traits)
    gender, age_years = choice.gender(), choice.age_years()
    timbre, character, tempo, use_case = (choice.trait(axis) for axis in AXES)
    return {
        "gender": gender,
        "age_years": age_years,
        "language": choice.language(),
        "timbre": timbre.id,
        "character": character.id,
        "tempo": tempo.id,
        "use_case": use_case.id,
        "name": traits.name(gender, age_years, (timbre, character), choice.findings.language),
        "reason": choice.reason(),
        "hints": choice.hints(),
    }


class _Choice:
    """Decides between the findings, field by field, and collects reasons and hints.

    Assumptions come last, because a reply has only a few hints.
    """

    def __init__(self, findings: Findings, traits: Traits) -> None:
        self.findings = findings
        self._traits = traits
        self._wording = traits.vocabulary.wording[findings.language]
        self._reasons: list[str] = []
        self._conflicts: list[str] = []
        self._assumed: list[str] = []
        self._open: list[str] = []

    def gender(self) -> Gender:
        of, language = self.findings.of, self.findings.language
        named, denied = of("gender"), of("gender", negated=True)
        # Where the text says `voice`, a pronoun may mean that word.
        says_voice = of("voice") or of("voice", negated=True)
        grammatical = self._traits.vocabulary.voice_gender.get(language) if says_voice else None
        evidence = named or [f for f in of("faint_gender") if f.value != grammatical]
        evidence = evidence or [f._replace(value="m" if f.value == "f" else "f") for f in denied[:1]]
        if not evidence:
            label = self._label(self._traits.genders[ASSUMED_GENDER])
            self._assumed.append(self._wording.no_gender.format(gender=label))
            return ASSUMED_GENDER
        balance = sum(f.weight if f.value == "m" else -f.weight for f in evidence)
        gender: Gender = "m" if balance > 0 or (balance == 0 and evidence[0].value == "m") else "f"
        label = self._label(self._traits.genders[gender])
        if len({f.value for f in named if f.weight > BY_NAME}) > 1:
            self._conflicts.append(self._wording.gender_torn.format(gender=label))
        self._reasons.append(label)
        return gender

    def age_years(self) -> int:
        """The age in figures, else in words, else that of a person who was named, else an assumed one."""
        low, high = AGE_YEARS
        ages, groups = sorted(self.findings.ages, key=lambda age: not age.sure), self.findings.of("age_group")
        if ages:
            years = ages[0].years
        elif groups:
            years = self._traits.age_groups[max(groups, key=lambda group: group.weight).value].middle_years
        elif self.findings.of("child"):
            years = low - 1
        elif not (years := self.findings.figure_years):
            self._assumed.append(self._wording.no_age.format(years=ASSUMED_YEARS))
            return ASSUMED_YEARS
        allowed = min(max(years, low), high)
        if ages and max(age.years for age in ages) - min(age.years for age in ages) >= CONFLICT_YEARS:
            self._conflicts.append(self._wording.age_torn.format(years=allowed))
        if allowed != years:
            self._conflicts.append(self._wording.age_limits.format(low=low, high=high, years=allowed))
        self._reasons.append(self._wording.about_years.format(years=allowed))
        return allowed

    def trait(self, axis: Axis) -> Trait:
        """The trait with most weight, moved by its degree; the plain one where there is none."""
        entries = self._traits.axes[axis]
        denied = [finding.value for finding in self.findings.of(axis, negated=True)]
        candidates = [finding for finding in self.findings.of(axis) if finding.value not in denied]
        self._reasons += [self._wording.without.format(trait=self._label(entries[id])) for id in dict.fromkeys(denied)]
        if not candidates:
            plain, *others = sorted(entries.values(), key=lambda trait: not trait.is_plain)
            trait = next((trait for trait in (plain, *others) if trait.id not in denied), plain)
            if trait.id in denied:
                labels = {"one": self._label(plain), "other": self._wording.without.format(trait=self._label(plain))}
                self._conflicts.append(self._wording.trait_torn.format(**labels))
            if not denied:
                self._open.append(self._label(trait))
            return trait
        best = max(candidates, key=lambda finding: finding.weight)  # the first of the weightiest
        trait = self._moved(axis, best)
        self._reasons.append(self._label(trait))
        effect = _effect(entries[best.value])
        opposites = (f.value for f in candidates if f.weight > BY_NAME and _effect(entries[f.value]) * effect < 0)
        if other := next(opposites, None):
            labels = {"one": self._label(entries[best.value]), "other": self._label(entries[other])}
            self._conflicts.append(self._wording.trait_torn.format(**labels))
        return trait

    def language(self) -> str:
        """The language that is named, else that of the text."""
        named = self.findings.of("language")
        if not named:
            return self.findings.language
        self._reasons.append(self._label(self._traits.languages[named[0].value]))
        return named[0].value

    def reason(self) -> str:
        traits = ", ".join(self._reasons)
        return self._wording.understood.format(traits=traits) if traits else self._wording.nothing

    def hints(self) -> list[str]:
        people = [self._wording.people] if self.findings.names_people else []
        accent = [self._wording.accent] if self.findings.names_accent else []
        silent = [self._wording.silent.format(traits=", ".join(self._open))] if self._open else []
        return [*people, *self._conflicts, *self._assumed, *accent, *silent][:HINTS]

    def _moved(self, axis: Axis, finding: Finding) -> Trait:
        """One step outwards on a scale for `very`, one step inwards for `slightly`, but never to the plain one."""
        scale = sorted(self._traits.axes[axis].values(), key=_effect)
        trait = self._traits.axes[axis][finding.value]
        if _effect(trait) == 0 or finding.weight not in (STRONGER, WEAKER):
            return trait
        step = 1 if (_effect(trait) > 0) == (finding.weight > PLAIN) else -1
        moved = scale[min(max(scale.index(trait) + step, 0), len(scale) - 1)]
        return trait if moved.is_plain else moved

    def _label(self, named: Named) -> str:
        return named.label(self.findings.language)


def _effect(trait: Trait) -> float:
    """The end of its scale that a trait is at: below 0, above, or 0 where it is at none."""
    return trait.semitones or trait.speed - 1
