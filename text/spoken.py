"""Comparison of a transcript with the text that was to be said, as far as a transcriber can be believed.

compare("Room 12, please.", "room twelve please", "en") -> Comparison(word_error_rate=0.0, first=None, longest=0)

Both texts become words in one spelling: without case, accents and punctuation, numbers as digits (`text2num`), signs,
units and titles as one word for each (`spoken.toml`). The words are aligned. A passage of words that differ counts

    if its numbers differ
    or its letters differ by LETTERS at least, and are not spelled alike otherwise

so a word that is left out counts, and a name that is written as it may sound does not. Where each passage that counts
has words for words, the transcriber may have mistaken them, and gets the sound again with a hint: of a long sound, part
by part (`doubts`).
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, groupby, pairwise, starmap
from pathlib import Path
from typing import NamedTuple

from rapidfuzz.distance import Levenshtein

from contract.transcription.engine import joined
from text.sentences import sentences
from text.speakable import PRICE, with_words

LETTERS = 4
"""Letters that must be added, dropped or replaced in a passage for it to count: shorter words are often mistaken."""

ALIKE = 0.5
"""Share of its letters that a passage may lose in another spelling of the same sound."""

MISHEARD = 5
"""Words in a row that a transcriber may mistake, but not with a hint. More are another sentence, or language."""

COUNTED = frozenset({"en", "es", "fr", "it", "pt", "de", "nl"})
"""Languages with words for numbers that are read as digits."""

_TABLES: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
_UNITS = {spelling: word for table in _TABLES.values() for word, row in table.items() for spelling in row.split()}
_WORD = re.compile(r"\d+(?:[.,:]\d+)*|[^\W\d_]+|[%€$£°&+=]")
_MINUS = re.compile(r"(?<!\S)[-−](?=\d)")
_TIMES = re.compile(r"(?<=\d )x(?= \d)")
_CLOCK = re.compile(r"\b(\d\d?)\.(\d\d)(?= ?(?:uhr|h|[ap]\.?m)\b)")
# Two digits behind a point may be minutes, a month or a version: without a unit they are compared without it.
_DECIMAL, _AMOUNT = (
    re.compile(rf"(0|\d+(?:[.,]\d{{3}})*)[.,]({decimals}|(?<=^0.)\d+)") for decimals in (r"\d", r"\d\d?")
)
_NO_DIGIT, _NO_NUMBER = re.compile(r"\D"), re.compile(r"[^\d.]")


@dataclass(frozen=True, slots=True)
class Comparison:
    """Differences of two texts.

    Attributes:
        words: of the text that was to be said, in the spelling in which it is compared.
        word_error_rate: words that were added, dropped or replaced, as a share of these.
        first: the first passage that counts, expected and transcribed; None where none does.
        longest: words of the longest passage that differs at all.
        is_doubtful: a second transcription with the text as a hint may differ. One word is mistaken for another;
            where a word is missing or added, a transcriber would make it up from the hint, or leave it out.
    """

    words: int
    word_error_rate: float
    first: tuple[str, str] | None
    longest: int
    is_doubtful: bool


def compare(text: str, transcript: str, language: str, letters: int = LETTERS) -> Comparison:
    """The differences of `transcript` from `text`, which has words."""
    expected, actual = spelled(text, language), spelled(transcript, language)
    edits, longest, counted = 0, 0, list[tuple[str, str]]()
    for is_same, codes in groupby(Levenshtein.opcodes(expected, actual), key=lambda code: code.tag == "equal"):
        if is_same:
            continue
        run = list(codes)
        old = expected[run[0].src_start : run[-1].src_end]
        new = actual[run[0].dest_start : run[-1].dest_end]
        edits, longest = edits + max(len(old), len(new)), max(longest, len(old), len(new))
        if counts(old, new, letters):
            counted.append((" ".join(old), " ".join(new)))
    is_doubtful = bool(counted) and longest <= MISHEARD and all(map(all, counted))
    return Comparison(len(expected), edits / max(len(expected), 1), next(iter(counted), None), longest, is_doubtful)


class Doubt(NamedTuple):
    """Sentences of a text that may be misheard, and the pieces of a transcript in which they are, as a slice."""

    text: str
    first: int
    end: int


def doubts(text: str, pieces: Sequence[str], language: str) -> list[Doubt]:
    """Parts to transcribe again, with their sentences as hints: whole sentences and whole pieces, in order.

    A transcriber takes a hint for the text before the sound, so of a long sound it would leave out the words of the
    hint.
    """
    parts = [part.text for part in sentences(text, max(len(text), 1))]
    expected, transcript = ([spelled(part, language) for part in some] for some in (parts, pieces))
    ends, piece_ends = (list(accumulate(map(len, some))) for some in (expected, transcript))
    # Behind which word of the text which word of the transcript ends, where they agree.
    places = {
        code.src_start + step: code.dest_start + step
        for code in Levenshtein.opcodes(list(chain(*expected)), list(chain(*transcript)))
        for step in range(code.src_end - code.src_start + 1)
        if code.tag == "equal"
    }
    joints = [(0, 0)]
    for number, end in enumerate(ends[:-1], 1):
        # Each part has a piece at least, or there would be no sound of it.
        piece = piece_ends.index(places[end]) if places.get(end) in piece_ends else -1
        if joints[-1][1] <= piece < len(pieces) - 1:
            joints.append((number, piece + 1))
    every = pairwise([*joints, (len(parts), len(pieces))])
    together = (("".join(parts[a:b]).strip(), first, end) for (a, first), (b, end) in every)
    return [Doubt(*part) for part in together if compare(part[0], joined(pieces[slice(*part[1:])]), language).first]


def spelled(text: str, language: str) -> list[str]:
    """The words of `text`, in the spelling in which texts are compared."""
    plain = unicodedata.normalize("NFKC", with_words(_TIMES.sub("×", text), language)).casefold()
    plain = PRICE.sub(r"\2 \1", _CLOCK.sub(r"\1:\2", plain))  # as it is read
    if language in COUNTED:
        from text_to_num import alpha2digit

        plain = alpha2digit(plain, language, threshold=0)
    plain = _MINUS.sub("minus ", plain)
    plain = "".join(char for char in unicodedata.normalize("NFD", plain) if not unicodedata.combining(char))
    words = [
        # A lone letter is a unit behind a number only: "l'hiver" has no litres.
        word if len(word) == 1 and word.isalpha() and not before[:1].isdigit() else _UNITS.get(word, word)
        for before, word in pairwise(["", *_WORD.findall(plain)])
    ]
    numbers = [
        whole
        for is_number, row in groupby(pairwise([*words, ""]), key=lambda pair: pair[0][0].isdigit())
        # "19 84" is 1984, and 1,500 is 1500: groups of digits have no sound.
        for whole in (("".join(starmap(_canonical, row)),) if is_number else (word for word, _ in row))
    ]
    return ["one" if word == "1" else word for word in numbers]  # "any one" may be one word


def _canonical(number: str, following: str) -> str:
    """Digits, with a point before decimals. The signs of dates, times and groups are dropped, and last zeros."""
    decimal = (_AMOUNT if following in _TABLES["amounts"] else _DECIMAL).fullmatch(number)
    whole, decimals = decimal.groups() if decimal else (number, "")
    return f"{_NO_DIGIT.sub('', whole)}.{decimals}".rstrip("0").rstrip(".")


def counts(old: list[str], new: list[str], letters: int = LETTERS) -> bool:
    """Says if a passage is something else, and not the same in another spelling."""
    expected, transcript = "".join(old), "".join(new)
    if _NO_NUMBER.sub("", expected) != _NO_NUMBER.sub("", transcript):
        return True
    edits = Levenshtein.distance(expected, transcript)
    return edits >= letters and edits > (1 - ALIKE) * max(len(expected), len(transcript))
