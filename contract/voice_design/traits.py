"""Options of an ordered voice: traits by axis, age groups, genders, languages.

All of them come from `configs/catalog/traits.toml`; this module refuses other ids. It also holds the words by which
`text.descriptions` reads free descriptions (`suggest.toml`, and `public_figures.toml` for well-known people).

In lists of words, `tief` is that word, `tief-` every word with that beginning, `-sprecher` every word with that ending,
and words with spaces between them are a sequence. Case does not matter, nor does `ae` for `ä` or `ss` for `ß`.
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
"""Language of labels for languages without labels."""


class Named(Frozen):
    """An option with labels for people, and words that mean it in a description.

    Attributes:
        labels: labels by language, ISO 639-1; English is always present.
        words: words by language, in the notation above.
    """

    labels: dict[str, str]
    words: dict[str, tuple[str, ...]] = {}

    def label(self, language: str) -> str:
        """Returns the label in `language`, or in English if there is none."""
        return self.labels.get(language, self.labels[FALLBACK_WORDING])


class Trait(Named):
    """One trait of a voice.

    Attributes:
        id: value of the axis in orders.
        instruct: wording in a description, in English.
        semitones: shift of the target pitch.
        speed: factor on the speed of speaking.
        is_plain: whether it is suggested if a description does not mention the axis; one trait of each axis is.
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
        """Age that represents the group."""
        return (self.from_years + self.to_years + 1) // 2


class GenderName(Named):
    """A gender: `instruct` is its word in a description, `faint_words` are used if none of `words` matches."""

    instruct: str
    faint_words: dict[str, tuple[str, ...]] = {}


class LanguageName(Named):
    """Name of a language, by language."""


class Wording(Frozen):
    """Texts of a suggestion in one language; `{...}` are filled in with labels and numbers, never with client text.

    Attributes:
        understood, nothing, about_years, without: parts of `reason`.
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
    """Words about ages.

    Attributes:
        units, teens, tens: values of the words for numbers.
        decade_endings: endings of a number that mean the ten years from it, as in `vierziger` or `50s`.
        shifts: words before a number, and the years that they add to it, as in `Anfang` or `over`.
        prefixes: such shifts as parts of one word, as in `Mittvierziger`.
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
    """Words by their function. Most of them count in both languages, so that mixed texts are understood.

    Attributes:
        common: by language, words that identify the language of a text.
        false_friends: by language, words with another meaning in the other one: they count only if the text is in
            their language.
        words: words by kind. `negation` negates the next words, `end` ends a negation, a following `cancel` undoes it.
            `stronger` and `weaker` change the weight of the next trait. `filler` may separate a degree or a negation
            from its object. `like` precedes the name of a person with a similar voice. `accent` turns the name of a
            language into an accent. `child` means a person younger than every age of an order. `before_age` and
            `after_age` make every number an age; other numbers are ages where possible. `until` between two numbers
            makes a range, and numbers before `no_age` are no ages.
        voice_gender: gender of words for a voice, in languages in which a pronoun may refer to one.
        wording: texts of replies, by language.
    """

    common: dict[str, tuple[str, ...]] = {}
    false_friends: dict[str, tuple[str, ...]] = {}
    words: dict[WordKind | AgeWordKind, tuple[str, ...]] = {}
    voice_gender: dict[str, Gender] = {}
    ages: AgeWords = AgeWords()
    wording: dict[str, Wording] = {}


class Figure(Frozen):
    """Voice of a well-known person. The name is matched, never stored or returned.

    Attributes:
        names: names in the notation above.
        traits: axis to id.
    """

    names: tuple[str, ...]
    gender: Gender
    age_years: int
    traits: dict[str, str]


Entry = TypeVar("Entry", bound=Named)


class Traits(Frozen):
    """All options of orders, and the words by which a description is understood.

    Attributes:
        axes: axis to id to trait, in the order of the file.
        age_groups: age groups by id, youngest first; together they cover every age of an order.
        genders: `m` and `f`.
        languages: every language in which a voice may be designed, by ISO 639-1 code.
        vocabulary: words that suggestions understand, in addition to those of each trait.
        figures: voices of well-known people.
    """

    axes: dict[Axis, dict[str, Trait]] = {}
    age_groups: dict[str, AgeGroup] = {}
    genders: dict[Gender, GenderName] = {}
    languages: dict[str, LanguageName] = {}
    vocabulary: Vocabulary = Vocabulary()
    figures: tuple[Figure, ...] = ()

    def trait(self, axis: Axis, id: str) -> Trait:
        """Returns a trait. Raises INVALID_REQUEST, which names all traits of the axis."""
        return _named(axis, id, self.axes[axis])

    def age_group(self, id: str) -> AgeGroup:
        """Returns an age group. Raises INVALID_REQUEST, which names all groups."""
        return _named("age_group", id, self.age_groups)

    def named(self) -> Iterator[tuple[str, str, Named]]:
        """Yields everything with labels: the field of an order (or the axis), the id, the entry."""
        tables: dict[str, Mapping[Any, Named]] = {
            **{str(axis): entries for axis, entries in self.axes.items()},
            "age_group": self.age_groups,
            "gender": self.genders,
            "language": self.languages,
        }
        for name, entries in tables.items():
            yield from ((name, id, entry) for id, entry in entries.items())

    def __hash__(self) -> int:
        """Returns a hash, because readers of descriptions are cached by their traits."""
        return hash((*self.axes, *self.age_groups, *self.languages))

    def name(self, gender: Gender, age_years: int, traits: Iterable[Trait], language: str) -> str:
        """Returns a name for people, e.g. `Woman, 34, bright, cheerful`."""
        parts = [self.genders[gender].label(language), str(age_years), *(trait.label(language) for trait in traits)]
        name = ", ".join(parts)
        return name[:1].upper() + name[1:]


def _named(param: str, id: str, entries: dict[str, Entry]) -> Entry:
    if id not in entries:
        raise INVALID_REQUEST(f"`{param}` is `{id[:40]}`; allowed are {', '.join(entries)}", param=param)
    return entries[id]
