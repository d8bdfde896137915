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

from contract.transcription.engine import SPACELESS
from text.formatting.words import Ordinal, spoken_ordinal

HYPHENS = "-\u2010\u2011"
APOSTROPHES = "'\u2019\u2018\u02bc"

STOPS = tuple(".!?:;\u2026\u3002\uff01\uff1f\uff1a\uff1b\uff0e\u0964\u061f\u06d4\u17d4\u1362")
"""Signs that may end a sentence, or introduce a list."""

WIDE_STOPS = "\u3002\uff01\uff1f\uff0e"
"""Stops after which no space follows."""

COMMAS = (*",\u060c\u3001\uff0c\u2013\u2014", " - ")
"""Signs that may end a part of a sentence."""

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
_LETTERS = rf"[[\p{{L}}\p{{M}}]--[{SPACELESS}]]+"

_TOKEN = regex.compile(
    rf"""
    (?P<number> \p{{Nd}}+ (?: [^\p{{L}}\p{{N}}\p{{M}}{WHITE}] \p{{Nd}}+ )* )
  | (?P<word>
        # "No. 5" counts, "no" refuses: there the point is part of the word.
        (?<! [\p{{L}}\p{{M}}] ) (?i:nos?|nrs?) \. (?= [{SPACE}]* \p{{Nd}} )
      | [{SPACELESS}] \p{{M}}*
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
_LISTED = regex.compile("0?[1-9]|[1-9][0-9]")
_ONE_APOSTROPHE = dict.fromkeys(map(ord, APOSTROPHES), "'")

_TOO_MANY_MARKS = regex.compile(r"\p{M}{31,}")
"""Unicode's stream-safe format has no more marks on a letter. To bring more into order takes quadratic time."""


class Token(NamedTuple):
    """A word, a number or a sign.

    Attributes:
        text: text in the one spelling in which texts are compared.
        kind: `word`, `number` or `sign`.
        start, end: its place in the normalised text.
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
        """Nothing but a hyphen is between it and the token before."""
        return len(self.before) == 1 and self.before in HYPHENS

    @property
    def is_apart(self) -> bool:
        """White space, or a stop that needs none, is between it and the token before."""
        return _APART.search(self.before) is not None

    @property
    def opens_line(self) -> bool:
        """It is the first of a line."""
        return "\n" in self.before

    @property
    def opens_sentence(self) -> bool:
        """A line, a sentence, or what a colon announces begins with it."""
        return self.opens_line or any(stop in self.before for stop in STOPS)

    @property
    def opens_clause(self) -> bool:
        """A part of a sentence begins with it."""
        return self.opens_sentence or any(comma in self.before for comma in COMMAS)

    @property
    def is_pointed(self) -> bool:
        """Punctuation follows on the same line, as after a list marker."""
        return self.after.lstrip(" \t")[:1] not in ("", "\r", "\n")


def normal(text: str) -> str:
    """Canonical composition: how an umlaut is encoded changes no word."""
    return text if _TOO_MANY_MARKS.search(text) else unicodedata.normalize("NFC", text)


def tokenize(text: str) -> list[Token]:
    """The tokens of `text`, in linear time. Positions are those of `normal(text)`."""
    text = normal(text)
    matches = list(_TOKEN.finditer(text))
    edges = [0, *(edge for match in matches for edge in match.span()), len(text)]
    gaps = [text[end:start] for end, start in zip(edges[::2], edges[1::2], strict=True)]
    gaps[0] = "\n" + gaps[0]
    plain = [
        Token(_spelling(match), match.lastgroup or "", match.start(), match.end(), before, after)
        for match, (before, after) in zip(matches, pairwise(gaps), strict=True)
    ]
    # A marker that repeats the number of the word after it is no token: `1. Erstens`.
    result: list[Token] = []
    has_marker = False
    for index, token in enumerate(plain):
        is_marker = _LISTED.fullmatch(token.text) and token.is_pointed and token.opens_sentence
        if is_marker and ordinal_at(plain, index + 1).value == int(token.text):
            has_marker = True
            continue
        result.append(token._replace(has_marker=True) if has_marker else token)
        has_marker = False
    return result


def _spelling(match: regex.Match[str]) -> str:
    text: str = match[0]
    if match.lastgroup == "word":
        return text.translate(_ONE_APOSTROPHE).lower()
    return _ANY_DASH.sub("-", text) if match.lastgroup == "number" or len(text) == 1 else text


def ordinal_at(tokens: Sequence[Token], index: int) -> Ordinal:
    """The ordinal that is spoken at an index, if an item begins with it, else NO_ORDINAL."""
    return spoken_ordinal(tuple(token.text for token in tokens[index : index + 3]))
