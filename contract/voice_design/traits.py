"""What a voice may be ordered to be: traits by axis, age groups, genders, languages.

All of it comes from `configs/catalog/traits.toml`; what is ordered by an id that is not there is refused here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, TypeVar

from pydantic import Field, PositiveFloat

from contract.base import Frozen
from contract.errors import INVALID_REQUEST
from contract.voice_design.vocabulary import Figure, Vocabulary

Axis = Literal["timbre", "character", "tempo", "use_case"]

AXES: tuple[Axis, ...] = ("timbre", "character", "tempo", "use_case")

Gender = Literal["m", "f"]

FALLBACK_WORDING = "en"
"""Language of labels in languages that have none of their own."""


class Named(Frozen):
    """What has a name for people, and words by which a description means it.

    Attributes:
        labels: by language, ISO 639-1; English is always there.
        heard: by language, in the notation of `contract.voice_design.vocabulary`.
    """

    labels: dict[str, str]
    heard: dict[str, tuple[str, ...]] = {}

    def label(self, language: str) -> str:
        """For people who read `language`, in English where there is no other."""
        return self.labels.get(language, self.labels[FALLBACK_WORDING])


class Trait(Named):
    """One trait of a voice.

    Attributes:
        id: value of the axis in orders.
        instruct: how a description says it, in English.
        semitones: by which it moves the target pitch.
        speed: factor on the speed of speaking.
        is_plain: suggested where a description says nothing about the axis; one trait of each axis is.
    """

    id: str
    instruct: str
    semitones: float = Field(0.0, ge=-12, le=12)
    speed: PositiveFloat = 1.0
    is_plain: bool = False


class AgeGroup(Named):
    """Ages from `from_years` to `to_years`, both included."""

    id: str
    from_years: int
    to_years: int

    @property
    def middle_years(self) -> int:
        """The age that stands for the group."""
        return (self.from_years + self.to_years + 1) // 2


class GenderName(Named):
    """A gender: `instruct` is its word in a description, `heard_faintly` says it where nothing in `heard` does."""

    instruct: str
    heard_faintly: dict[str, tuple[str, ...]] = {}


class LanguageName(Named):
    """The name of a language, in languages."""


Entry = TypeVar("Entry", bound=Named)


class Traits(Frozen):
    """All that can be ordered by name, and the words by which a description is understood.

    Attributes:
        axes: axis to id to trait, in the order of the file.
        age_groups: by id, youngest first; together they cover every age that can be ordered.
        genders: `m` and `f`.
        languages: by ISO 639-1 code; every language in which a voice may be designed.
        vocabulary: words that suggestions understand, beside those of each trait.
        figures: well-known people, by what is heard in their voices.
    """

    axes: dict[Axis, dict[str, Trait]] = {}
    age_groups: dict[str, AgeGroup] = {}
    genders: dict[Gender, GenderName] = {}
    languages: dict[str, LanguageName] = {}
    vocabulary: Vocabulary = Vocabulary()
    figures: tuple[Figure, ...] = ()

    def trait(self, axis: Axis, id: str) -> Trait:
        """A trait. Raises INVALID_REQUEST, which names all of the axis."""
        return _named(axis, id, self.axes[axis])

    def age_group(self, id: str) -> AgeGroup:
        """An age group. Raises INVALID_REQUEST, which names all."""
        return _named("age_group", id, self.age_groups)

    def chosen(self, ids: dict[str, str]) -> list[Trait]:
        """The traits of `ids`, axis to id, in the order of AXES."""
        return [self.trait(axis, ids[axis]) for axis in AXES if axis in ids]

    def named(self) -> Iterator[tuple[str, str, Named]]:
        """Everything that has labels: the field of an order (or the axis), the id, the entry."""
        tables: dict[str, Mapping[Any, Named]] = {
            **{str(axis): entries for axis, entries in self.axes.items()},
            "age_group": self.age_groups,
            "gender": self.genders,
            "language": self.languages,
        }
        for name, entries in tables.items():
            yield from ((name, id, entry) for id, entry in entries.items())

    def __hash__(self) -> int:
        """Traits are what readers of descriptions are cached by."""
        return hash((*self.axes, *self.age_groups, *self.languages))

    def name(self, gender: Gender, age_years: int, traits: Iterable[Trait], language: str) -> str:
        """A name for people, e.g. `Woman, 34, bright, cheerful`."""
        parts = [self.genders[gender].label(language), str(age_years), *(trait.label(language) for trait in traits)]
        name = ", ".join(parts)
        return name[:1].upper() + name[1:]


def _named(param: str, id: str, entries: dict[str, Entry]) -> Entry:
    if id not in entries:
        raise INVALID_REQUEST(f"there is no `{param}` `{id[:40]}`; allowed are {', '.join(entries)}", param=param)
    return entries[id]
