"""Whether a transcript says what a text says, as far as a transcriber can be believed.

compare("Room 12, please.", "room twelve please", "en") -> Comparison(word_error_rate=0.0, first=None, longest=0)

Both texts become words in one spelling: without case, accents and punctuation, numbers as digits (`text2num`), signs,
units and titles as one word for each (`spoken.toml`). The words are aligned. A passage of words that differ counts

    if its numbers differ
    or its letters differ by LETTERS at least, and are not spelled alike otherwise

so a word that is left out counts, and a name that is written as it may sound does not.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path

from rapidfuzz.distance import Levenshtein

LETTERS = 4
"""Letters that must be added, dropped or replaced in a passage for it to count: shorter words are often misheard."""

ALIKE = 0.5
"""Share of its letters that a passage may lose in another spelling of the same sound."""

MISHEARD = 3
"""Words in a row that ears may mishear, and hear with a hint. They would make up a longer passage from the hint."""

COUNTED = frozenset({"en", "es", "fr", "it", "pt", "de", "nl"})
"""Languages whose words for numbers are read as digits."""

_UNITS: dict[str, str] = {
    spelling: word
    for word, spellings in tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))["words"].items()
    for spelling in spellings.split()
}
_WORD = re.compile(r"\d+(?:[.,:]\d+)*|[^\W\d_]+|[%€$£°&+=]")
_PRICE = re.compile(r"([€$£]) ?(\d[\d.,]*)")
_NO_DIGIT = re.compile(r"\D")


@dataclass(frozen=True, slots=True)
class Comparison:
    """How two texts differ.

    Attributes:
        words: of the text that was to be said, in the spelling in which it is compared.
        word_error_rate: words that were added, dropped or replaced, as a share of these.
        first: the first passage that counts, expected and heard; None where none does.
        longest: words of the longest passage that differs at all.
    """

    words: int
    word_error_rate: float
    first: tuple[str, str] | None
    longest: int

    @property
    def is_doubtful(self) -> bool:
        """Whether it counts, and a second hearing with the text as a hint may tell otherwise."""
        return self.first is not None and self.longest <= MISHEARD


def compare(text: str, transcript: str, language: str, letters: int = LETTERS) -> Comparison:
    """How `transcript` differs from `text`, which has words."""
    expected, heard_words = spelled(text, language), spelled(transcript, language)
    edits, longest, first = 0, 0, None
    for is_same, codes in groupby(Levenshtein.opcodes(expected, heard_words), key=lambda code: code.tag == "equal"):
        if is_same:
            continue
        run = list(codes)
        old = expected[run[0].src_start : run[-1].src_end]
        new = heard_words[run[0].dest_start : run[-1].dest_end]
        edits, longest = edits + max(len(old), len(new)), max(longest, len(old), len(new))
        if first is None and counts(old, new, letters):
            first = (" ".join(old), " ".join(new))
    return Comparison(len(expected), edits / max(len(expected), 1), first, longest)


def spelled(text: str, language: str) -> list[str]:
    """The words of `text`, in the spelling in which texts are compared."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    plain = _PRICE.sub(r"\2 \1", plain)  # as it is read
    if language in COUNTED:
        from text_to_num import alpha2digit

        plain = alpha2digit(plain, language, threshold=0)
    plain = "".join(char for char in unicodedata.normalize("NFD", plain) if not unicodedata.combining(char))
    words = [
        # A lone letter is a unit behind a number only: "l'hiver" has no litres.
        word if len(word) == 1 and word.isalpha() and not before[:1].isdigit() else _UNITS.get(word, word)
        for before, word in pairwise(["", *_WORD.findall(plain)])
    ]
    numbers = [
        whole
        for is_number, row in groupby(words, key=lambda word: word[0].isdigit())
        # "19 84" is 1984, and 1,500 is 1500: how digits are grouped is not heard.
        for whole in (("".join(_NO_DIGIT.sub("", number) for number in row),) if is_number else row)
    ]
    return ["one" if word == "1" else word for word in numbers]  # "any one" may be one word


def counts(old: list[str], new: list[str], letters: int = LETTERS) -> bool:
    """Whether a passage says something else, and is not the same in another spelling."""
    expected, transcript = "".join(old), "".join(new)
    if _NO_DIGIT.sub("", expected) != _NO_DIGIT.sub("", transcript):
        return True
    edits = Levenshtein.distance(expected, transcript)
    return edits >= letters and edits > (1 - ALIKE) * max(len(expected), len(transcript))
