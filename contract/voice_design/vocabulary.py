"""Words that a free description of a voice is understood by, beside those of each trait: data of `suggest`.

Wherever words are listed, `tief` is that word, `tief-` every word that begins so, `-sprecher` every word that ends so,
and words with spaces between them stand in this order. Case does not count, nor does `ae` for `ä` or `ss` for `ß`.
"""

from __future__ import annotations

from typing import Literal

from contract.base import Frozen


class Wording(Frozen):
    """What a suggestion says, in one language; `{...}` are filled in with labels and figures of our own.

    Attributes:
        heard, nothing, about_years, without: of `reason`.
        people, gender_torn, trait_torn, age_torn, age_limits, accent, no_gender, no_age, silent: hints.
    """

    heard: str
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
        before, after: words that make every number an age; any other is one where it can be.
        until: words between two numbers that are a range.
        others: what follows numbers that are no ages.
    """

    units: dict[str, int] = {}
    teens: dict[str, int] = {}
    tens: dict[str, int] = {}
    decade_endings: tuple[str, ...] = ()
    shifts: dict[str, int] = {}
    prefixes: dict[str, int] = {}
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    until: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


class Vocabulary(Frozen):
    """Words by what they do. Most of them count in both languages, so that mixed texts are understood.

    Attributes:
        common: by language, words that show which language a text is in.
        false_friends: by language, words that mean something else in the other one: they count only where the text
            is in their language.
        negations: what turns the next words round, `ends` are words that end this, `cancels` undo it when they follow.
        stronger, weaker: degrees: the next trait counts more or less.
        fillers: words that may stand between a degree or a negation and what it is about.
        likes: what comes before the name of somebody who sounds so.
        accents: what makes the name of a language an accent.
        child: words for people who are younger than anybody who can be ordered.
        voice: words for voices. `voice_gender` is their gender in languages in which a pronoun may mean a voice.
        wording: of replies, by language.
    """

    common: dict[str, tuple[str, ...]] = {}
    false_friends: dict[str, tuple[str, ...]] = {}
    negations: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    cancels: tuple[str, ...] = ()
    stronger: tuple[str, ...] = ()
    weaker: tuple[str, ...] = ()
    fillers: tuple[str, ...] = ()
    likes: tuple[str, ...] = ()
    accents: tuple[str, ...] = ()
    child: tuple[str, ...] = ()
    voice: tuple[str, ...] = ()
    voice_gender: dict[str, Literal["m", "f"]] = {}
    ages: AgeWords = AgeWords()
    wording: dict[str, Wording] = {}


class Figure(Frozen):
    """A well-known person, by what is heard in the voice. The name is matched, never kept or answered.

    Attributes:
        names: in the notation above.
        traits: axis to id.
    """

    names: tuple[str, ...]
    gender: Literal["m", "f"]
    age_years: int
    traits: dict[str, str]
