"""What a voice may be ordered to be: traits by axis, age groups, genders, languages.

All of it comes from `configs/catalog/traits.toml`; what is ordered by an id that is not there is refused here.
Beside it stand the words by which `text.descriptions` understands free descriptions (`suggest.toml`, and
`public_figures.toml` for well-known people).

Wherever words are listed, `tief` is that word, `tief-` every word that begins so, `-sprecher` every word that ends so,
and words with spaces between them stand in this order. Case does not count, nor does `ae` for `ä` or `ss` for `ß`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, TypeVar

from pydantic import Field, PositiveFloat

from contract.base import Frozen
from contract.errors import INVALID_REQUEST

Axis = Literal["timbre", "character", "tempo", "use_case"]

AXES: tuple[Axis, ...] = ("timbre", "character", "tempo", "use_case")

Gender = Literal["m", "f"]

FALLBACK_WORDING = "en"
"""Language of labels in languages that have none of their own."""


class Named(Frozen):
    """What has a name for people, and words by which a description means it.

    Attributes:
        labels: by language, ISO 639-1; English is always there.
        words: by language, in the notation above.
    """

    labels: dict[str, str]
    words: dict[str, tuple[str, ...]] = {}

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
    """A gender: `instruct` is its word in a description, `faint_words` say it where nothing in `words` does."""

    instruct: str
    faint_words: dict[str, tuple[str, ...]] = {}


class LanguageName(Named):
    """The name of a language, in languages."""


class Wording(Frozen):
    """What a suggestion says, in one language; `{...}` are filled in with labels and figures of our own.

    Attributes:
        understood, nothing, about_years, without: of `reason`.
        people, gender_torn, trait_torn, age_torn, age_limits, accent, no_gender, no_age, silent: hints.
    """

    understood: str
    nothing: str
    about_years: str
    without: str
    people: str
    gender_torn: str
    trait_torn: str
    age_torn: str
    age_limits: str
    accent: str
    no_gender: str
    no_age: str
    silent: str


class AgeWords(Frozen):
    """Words about figures that are ages.

    Attributes:
        units, teens, tens: what the words of numbers are worth.
        decade_endings: after a number: the ten years from there, as in `vierziger` or `50s`.
        shifts: words before a number, and the years that they add to it, as in `Anfang` or `over`.
        prefixes: the same as parts of one word, as in `Mittvierziger`.
    """

    units: dict[str, int] = {}
    teens: dict[str, int] = {}
    tens: dict[str, int] = {}
    decade_endings: tuple[str, ...] = ()
    shifts: dict[str, int] = {}
    prefixes: dict[str, int] = {}


WordKind = Literal["negation", "end", "cancel", "stronger", "weaker", "filler", "like", "accent", "child", "voice"]
AgeWordKind = Literal["before_age", "after_age", "until", "no_age"]


class Vocabulary(Frozen):
    """Words by what they do. Most of them count in both languages, so that mixed texts are understood.

    Attributes:
        common: by language, words that show which language a text is in.
        false_friends: by language, words that mean something else in the other one: they count only where the text
            is in their language.
        words: by kind. `negation` turns the next words round, `end` ends this, `cancel` undoes it when it follows.
            `stronger` and `weaker`: the next trait counts more or less. `filler` may stand between a degree or a
            negation and what it is about. `like` comes before the name of somebody who sounds so. `accent` makes the
            name of a language an accent. `child` is who is younger than anybody who can be ordered. `before_age` and
            `after_age` make every number an age; any other is one where it can be. `until` between two numbers makes
            a range of them, and numbers before `no_age` are no ages.
        voice_gender: of words for a voice, in languages in which a pronoun may mean one.
        wording: of replies, by language.
    """

    common: dict[str, tuple[str, ...]] = {}
    false_friends: dict[str, tuple[str, ...]] = {}
    words: dict[WordKind | AgeWordKind, tuple[str, ...]] = {}
    voice_gender: dict[str, Gender] = {}
    ages: AgeWords = AgeWords()
    wording: dict[str, Wording] = {}


class Figure(Frozen):
    """A well-known person, by what is heard in the voice. The name is matched, never kept or answered.

    Attributes:
        names: in the notation above.
        traits: axis to id.
    """

    names: tuple[str, ...]
    gender: Gender
    age_years: int
    traits: dict[str, str]


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
        raise INVALID_REQUEST(f"`{param}` is `{id[:40]}`; allowed are {', '.join(entries)}", param=param)
    return entries[id]
