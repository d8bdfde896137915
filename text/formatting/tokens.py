"""A text as the tokens that must not change: words, numbers and signs.

tokenize("Es sind -3,5 °C: kalt!") -> es | sind | - | 3,5 | ° | c | kalt

    word      letters and their marks in lower case, apostrophes inside included; a hyphen ends it
    sign of   a script that is written without spaces: each is a word of its own
    number    digits, and whatever stands between two of them without a space: `3,5`, `10:30`, `1.000`, `12/7`
    sign      all else that is neither white space nor punctuation of a sentence: `%`, `€`, `#`, `<`, a minus, and every
              invisible character

Only what lies between tokens is free: white space and the punctuation of sentences. So nothing can hide in it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import regex

from text.formatting.words import Ordinal, spoken_ordinal

HYPHENS = "-\u2010\u2011"
APOSTROPHES = "'\u2019\u2018\u02bc"

STOPS = tuple(".!?:;\u2026\u3002\uff01\uff1f\uff1a\uff1b\uff0e\u0964\u061f\u06d4\u17d4\u1362")
"""What may end a sentence, or introduce a list."""

WIDE_STOPS = "\u3002\uff01\uff1f\uff0e"
"""Stops after which no space follows."""

COMMAS = (*",\u060c\u3001\uff0c\u2013\u2014", " - ")
"""What may end a part of a sentence."""

# Classes of characters, as they stand inside brackets.
SPACE = r"\ \t\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000"
WHITE = SPACE + r"\r\n"
_HYPHEN = r"\-\u2010\u2011"
_DASH = _HYPHEN + r"\u2012-\u2015\u2212"
_FREE = (
    "".join(STOPS)
    + r",()'\"\u00a1\u00ab\u00bb\u00bf\u0589\u055c\u055e\u05be\u05f3\u05f4\u060c\u061b\u0965\u0f0d"
    + r"\u104a\u104b\u1361\u2012-\u2015\u2018-\u201f\u2022\u2039\u203a\u3001\u3008-\u3011\uff08\uff09\uff0c"
    + _HYPHEN
)
_ONE_BY_ONE = r"\p{Han}\p{Hiragana}\p{Katakana}\u30fc\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}"
_LETTERS = rf"[[\p{{L}}\p{{M}}]--[{_ONE_BY_ONE}]]+"

_TOKEN = regex.compile(
    rf"""
    (?P<number> \p{{Nd}}+ (?: [^\p{{L}}\p{{N}}\p{{M}}{WHITE}] \p{{Nd}}+ )* )
  | (?P<word>
        # "No. 5" counts, "no" refuses: there the point is part of the word.
        (?<! [\p{{L}}\p{{M}}] ) (?i:nos?|nrs?) \. (?= [{SPACE}]* \p{{Nd}} )
      | [{_ONE_BY_ONE}] \p{{M}}*
      | {_LETTERS} (?: [{APOSTROPHES}] {_LETTERS} )* )
  | (?P<sign>
        (?<! [\p{{L}}\p{{N}}] ) [{_DASH}] (?= [{SPACE}]* \p{{Nd}} )                # a minus
      | -{{3,}}                                                                # a rule of Markdown
      | [.,] (?= \p{{Nd}} )                                                    # .5
      | (?<= \p{{Nd}} [{SPACE}]+ ) [.,:\u2022] (?= [{SPACE}]* \p{{Nd}} )         # 2 : 1
      | (?<= \p{{L}} \p{{L}} ) \. (?= \p{{L}} \p{{L}} )                            # example.com
      | [^\p{{L}}\p{{Nd}}\p{{M}}{_FREE}{WHITE}] )
    """,
    regex.VERBOSE | regex.VERSION1,
)
_APART = regex.compile(f"[{WHITE}{WIDE_STOPS}]", regex.VERSION1)
_ANY_DASH = regex.compile(f"[{_DASH}]")
_LISTED = regex.compile("[0-9]{1,2}")

_TOO_MANY_MARKS = regex.compile(r"\p{M}{31,}")
"""Unicode's stream-safe format has no more marks on a letter. To bring more into order takes quadratic time."""


class Token(NamedTuple):
    """A word, a number or a sign.

    Attributes:
        text: in the one spelling in which texts are compared.
        kind: `word`, `number` or `sign`.
        start, end: where it stands in the normalised text.
        before, after: the text up to the neighbouring tokens, which may change. A line begins before the first token.
        has_marker: a word before which a list marker of the same value stands: `2. Zweitens`. The marker is no token.
    """

    text: str
    kind: str
    start: int
    end: int
    before: str
    after: str
    has_marker: bool = False

    @property
    def is_joined(self) -> bool:
        """Whether nothing but a hyphen is between it and the token before."""
        return len(self.before) == 1 and self.before in HYPHENS

    @property
    def is_apart(self) -> bool:
        """Whether white space, or a stop that needs none, is between it and the token before."""
        return _APART.search(self.before) is not None

    @property
    def opens_line(self) -> bool:
        """Whether it is the first of a line."""
        return "\n" in self.before

    @property
    def opens_sentence(self) -> bool:
        """Whether a line, a sentence, or what a colon announces begins with it."""
        return self.opens_line or any(stop in self.before for stop in STOPS)

    @property
    def opens_clause(self) -> bool:
        """Whether a part of a sentence begins with it."""
        return self.opens_sentence or any(comma in self.before for comma in COMMAS)

    @property
    def is_pointed(self) -> bool:
        """Whether punctuation follows on the same line, as after a list marker."""
        rest = self.after.lstrip(" \t")
        return bool(rest) and rest[0] not in "\r\n"


def normal(text: str) -> str:
    """Canonical composition: how an umlaut is encoded changes no word."""
    return text if _TOO_MANY_MARKS.search(text) else unicodedata.normalize("NFC", text)


def tokenize(text: str) -> list[Token]:
    """The tokens of `text`, in linear time. Positions are those of `normal(text)`."""
    text = normal(text)
    matches = list(_TOKEN.finditer(text))
    ends = [0, *(match.end() for match in matches)]
    starts = [*(match.start() for match in matches), len(text)]
    gaps = [text[end:start] for end, start in zip(ends, starts, strict=True)]
    gaps[0] = "\n" + gaps[0]
    plain = [
        Token(_spelling(match), match.lastgroup or "", match.start(), match.end(), before, after)
        for match, (before, after) in zip(matches, pairwise(gaps), strict=True)
    ]
    return _without_markers(plain)


def _spelling(match: regex.Match[str]) -> str:
    text: str = match[0]
    if match.lastgroup == "word":
        for apostrophe in APOSTROPHES[1:]:
            text = text.replace(apostrophe, "'")
        return text.lower()
    return _ANY_DASH.sub("-", text) if match.lastgroup == "number" or len(text) == 1 else text


def _without_markers(tokens: list[Token]) -> list[Token]:
    """Removes markers that repeat the number of the word after them: `1. Erstens`."""
    result: list[Token] = []
    follows_marker = False
    for index, token in enumerate(tokens):
        ordinal = ordinal_at(tokens, index + 1) if _is_marker(token) else None
        if ordinal and ordinal.value == int(token.text):
            follows_marker = True
            continue
        result.append(token._replace(has_marker=True) if follows_marker else token)
        follows_marker = False
    return result


def _is_marker(token: Token) -> bool:
    return bool(_LISTED.fullmatch(token.text)) and token.is_pointed and token.opens_sentence


def ordinal_at(tokens: Sequence[Token], index: int) -> Ordinal | None:
    """The ordinal that is spoken at an index, if an item begins with it."""
    return spoken_ordinal([token.text for token in tokens[index : index + 3]])
