"""Pieces of speech as one text, by the scripts of the letters that meet: not all have spaces between words.

joined(["Good", "day"]) -> "Good day"          joined(["你好。", "再见"]) -> "你好。再见"
words("Good day, 再见") -> "Good", " day,", " 再见"
"""

from __future__ import annotations

from collections.abc import Iterable

import regex

SPACELESS = r"\p{Han}\p{Hiragana}\p{Katakana}\u30fc\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}"
"""Letters of scripts without spaces between words, as they stand inside brackets."""

_HAS_SPACELESS = regex.compile(rf"[{SPACELESS}]").search
_WORD = regex.compile(r"\s*\S+")


def continuation(before: str, after: str) -> str:
    """Returns `after` as it follows `before`: behind a space, unless a script that meets the other there has none."""
    edges = "".join(next(filter(str.isalnum, text), "") for text in (reversed(before), after))
    return after if not before or not after or _HAS_SPACELESS(edges) else f" {after}"


def joined(pieces: Iterable[str]) -> str:
    """Returns the text of all `pieces`."""
    texts = list(filter(None, pieces))
    return "".join(map(continuation, ["", *texts], texts))


def words(text: str) -> list[str]:
    """Returns the words of `text`, each with the white space before it; without spaces, all of it is one."""
    return list[str](_WORD.findall(text))
