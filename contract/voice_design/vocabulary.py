"""Words that a free description of a voice is understood by, beside those of each trait: data of `suggest`.

Wherever words are listed, `tief` is that word, `tief-` every word that begins so, `-sprecher` every word that ends so,
and words with spaces between them stand in this order. Case does not count, nor does `ae` for `ä` or `ss` for `ß`.
"""

from __future__ import annotations

from typing import Literal

from contract.base import Frozen


class Vocabulary(Frozen):
    """Words by what they do. Most of them are the same to both languages, so that mixed texts are understood.

    Attributes:
        common: by language, words that show which language a text is in.
        false_friends: by language, words that mean something else in the other one: they count only where the text
            is in their language.
        negations: what turns the next words round; `ends` are words that end this, `cancels` undo it when they follow.
        stronger, weaker: degrees; the next word counts more or less.
        fillers: words that stand between a degree or a negation and what it is about.
    """

    common: dict[str, tuple[str, ...]] = {}
    false_friends: dict[str, tuple[str, ...]] = {}
    negations: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    cancels: tuple[str, ...] = ()
    stronger: tuple[str, ...] = ()
    weaker: tuple[str, ...] = ()
    fillers: tuple[str, ...] = ()


class Figure(Frozen):
    """A well-known person, by what is heard in the voice. The name is matched, never kept or answered."""

    names: tuple[str, ...]
    gender: Literal["m", "f"]
    age_years: int
    timbre: str
    character: str
    tempo: str
    use_case: str
