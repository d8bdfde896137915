"""Traits from a free description of a voice, in German or English, by tables of words: no engine runs.

    suggest(text, traits) -> SuggestReply

Everything in the reply is worded by `configs/catalog/suggest.toml`; nothing of `text` is repeated or stored, so no name
of a person is. Where the description says nothing the plain trait is taken, and a hint says so.
"""

from __future__ import annotations

from contract.limits import AGE_YEARS
from contract.voice_design.replies import SuggestReply
from contract.voice_design.traits import AXES, Axis, Gender, Named, Trait, Traits, Wording
from text.descriptions.findings import BY_NAME, PLAIN, STRONGER, WEAKER, DescriptionFindings, Finding, find

HINTS = 3
ASSUMED_YEARS = 40
ASSUMED_GENDER: Gender = "f"
CONFLICT_YEARS = 10
"""From this distance on two ages contradict each other."""


def suggest(text: str, traits: Traits) -> SuggestReply:
    """Traits for an order of the voice that `text` describes. Equal texts give equal replies."""
    findings = find(text, traits)
    choice = _Choice(findings, traits)
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
        "name": traits.name(gender, age_years, (chosen["timbre"], chosen["character"]), findings.language),
        "reason": choice.reason(),
        "hints": choice.hints(),
    }


class _Choice:
    """Decides between the findings, field by field, and collects reasons and hints.

    Assumptions come last, because a reply has only a few hints.
    """

    def __init__(self, findings: DescriptionFindings, traits: Traits) -> None:
        self._findings = findings
        self._traits = traits
        self._wording: Wording = traits.vocabulary.wording[findings.language]
        self._reasons: list[str] = []
        self._conflicts: list[str] = []
        self._assumed: list[str] = []
        self._open: list[str] = []

    def gender(self) -> Gender:
        named, denied = self._findings.of("gender"), self._findings.of("gender", negated=True)
        faint = [f for f in self._findings.of("faint_gender") if f.value != self._grammatical()]
        if evidence := named or faint:
            woman, man = (sum(f.weight for f in evidence if f.value == gender) for gender in ("f", "m"))
            gender: Gender = "m" if man > woman or (man == woman and evidence[0].value == "m") else "f"
        elif denied:
            gender = "m" if denied[0].value == "f" else "f"
        else:
            gender = ASSUMED_GENDER
        label = self._label(self._traits.genders[gender])
        if not evidence and not denied:
            self._assumed.append(self._wording.no_gender.format(gender=label))
            return gender
        if len({f.value for f in named if f.weight > BY_NAME}) > 1:
            self._conflicts.append(self._wording.gender_torn.format(gender=label))
        self._reasons.append(label)
        return gender

    def age_years(self) -> int:
        """The age in figures, else in words, else that of a person who was named, else an assumed one."""
        low, high = AGE_YEARS
        ages, groups = sorted(self._findings.ages, key=lambda age: not age.sure), self._findings.of("age_group")
        group = max(groups, key=lambda finding: finding.weight, default=None)
        if ages:
            years = ages[0].years
            if max(age.years for age in ages) - min(age.years for age in ages) >= CONFLICT_YEARS:
                self._conflicts.append(self._wording.age_torn.format(years=min(max(years, low), high)))
        elif group:
            years = self._traits.age_groups[group.value].middle_years
        elif self._findings.of("child"):
            years = low - 1
        elif self._findings.figure_years:
            years = self._findings.figure_years
        else:
            self._assumed.append(self._wording.no_age.format(years=ASSUMED_YEARS))
            return ASSUMED_YEARS
        allowed = min(max(years, low), high)
        if allowed != years:
            self._conflicts.append(self._wording.age_limits.format(low=low, high=high, years=allowed))
        self._reasons.append(self._wording.about_years.format(years=allowed))
        return allowed

    def trait(self, axis: Axis) -> Trait:
        """The trait with most weight, moved by its degree; the plain one where there is none."""
        entries = self._traits.axes[axis]
        denied = [finding.value for finding in self._findings.of(axis, negated=True)]
        candidates = [finding for finding in self._findings.of(axis) if finding.value not in denied]
        self._reasons += [self._wording.without.format(trait=self._label(entries[id])) for id in dict.fromkeys(denied)]
        if not candidates:
            trait = next(t for t in sorted(entries.values(), key=lambda t: not t.is_plain) if t.id not in denied)
            if not denied:
                self._open.append(self._label(trait))
            return trait
        # The first of the weightiest.
        best = max(candidates, key=lambda finding: finding.weight)
        trait = self._moved(axis, best)
        self._reasons.append(self._label(trait))
        self._compare(axis, best, candidates)
        return trait

    def language(self) -> str:
        """The language that is named, else that of the text."""
        named = self._findings.of("language")
        if not named:
            return self._findings.language
        self._reasons.append(self._label(self._traits.languages[named[0].value]))
        return named[0].value

    def reason(self) -> str:
        return (
            self._wording.understood.format(traits=", ".join(self._reasons)) if self._reasons else self._wording.nothing
        )

    def hints(self) -> list[str]:
        people = [self._wording.people] if self._findings.names_people else []
        accent = [self._wording.accent] if self._findings.names_accent else []
        silent = [self._wording.silent.format(traits=", ".join(self._open))] if self._open else []
        return [*people, *self._conflicts, *self._assumed, *accent, *silent][:HINTS]

    def _moved(self, axis: Axis, finding: Finding) -> Trait:
        """One step outwards on a scale for `very`, one step inwards for `slightly`, but never to the plain one."""
        scale = _scale(self._traits.axes[axis])
        trait = self._traits.axes[axis][finding.value]
        if _effect(trait) == 0 or finding.weight not in (STRONGER, WEAKER):
            return trait
        outwards = (1 if _effect(trait) > 0 else -1) * (1 if finding.weight > PLAIN else -1)
        index = scale.index(trait) + outwards
        moved = scale[min(max(index, 0), len(scale) - 1)]
        return trait if moved.is_plain else moved

    def _compare(self, axis: Axis, best: Finding, candidates: list[Finding]) -> None:
        """Adds a hint where both ends of a scale are among the candidates."""
        entries = self._traits.axes[axis]
        for other in candidates:
            if other.weight > BY_NAME and _effect(entries[other.value]) * _effect(entries[best.value]) < 0:
                labels = self._label(entries[best.value]), self._label(entries[other.value])
                self._conflicts.append(self._wording.trait_torn.format(one=labels[0], other=labels[1]))
                return

    def _grammatical(self) -> Gender | None:
        """The gender of the word for `voice`, where pronouns may mean the voice and nobody in particular."""
        says_voice = self._findings.of("voice") or self._findings.of("voice", negated=True)
        return self._traits.vocabulary.voice_gender.get(self._findings.language) if says_voice else None

    def _label(self, named: Named) -> str:
        return named.label(self._findings.language)


def _effect(trait: Trait) -> float:
    """Which end of its scale a trait is at: below 0, above, or 0 where it is at none."""
    return trait.semitones or trait.speed - 1


def _scale(entries: dict[str, Trait]) -> list[Trait]:
    return sorted(entries.values(), key=_effect)
