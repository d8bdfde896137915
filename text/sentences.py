"""Ends of sentences, in any language.

sentences("Hello. How are you?", 200)    TextPart("Hello. ", 7), TextPart("How are you?", 19)
passages("Hello. How are you?", 200)     TextPart("Hello. How are you?", 19)        as many sentences as fit
ends_sentence("Dr. Smith came.", 4)      False: the dot belongs to an abbreviation

The parts of a text, joined, are the text again, white space included.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import regex

ABBREVIATIONS = (
    "Abs approx bzw ca Corp Dept Dhr Dott Dr evtl Fr ggf Hr Hrn Inc inkl Jr Ltd Mevr Mlle Mme Mr Mrs Ms Nr Prof Sig "
    "Sig.ra Sr Sra St Str Tel vgl vs zzgl"
)
"""After these a dot does not end a sentence, nor after one letter ("J. Smith") or a small number ("3. Mai")."""
OPEN_ENDS = " etc usw"
"""After these a dot may end a sentence; only the text behind it shows that."""


def _unfinished(abbreviations: str) -> str:
    words = "|".join(map(regex.escape, abbreviations.split()))
    return rf"(?<![\p{{L}}\p{{N}}])(?:{words}|[Nn]os?(?=\.\s*\d)|\p{{L}}|(?<!\d[,:])\d{{1,2}})"


_DOT = r"[…\p{Sentence_Break=ATerm}]"
_STOP = r"[!?\u037e…\p{Sentence_Break=ATerm}]"

_SENTENCE_END = rf"""
    (?: (?![!?])\p{{Sentence_Break=STerm}} )++ (?&closing) \s*
  | (?<!{_STOP}) (?={_DOT}*+[!?\u037e]) {_STOP}++ (?&closing) (?: \s+ | \Z )
  | (?<!{_STOP} | {_unfinished(ABBREVIATIONS)})
    {_DOT}++ (?&closing) (?: \s+ | \Z ) (?!\p{{Ll}})
  | \n [^\S\n]* \n \s*
  | \n \s* (?!\p{{Ll}})
"""
"""The end of a sentence. `STerm` is Unicode's class of !, ?, 。, ।, ؟ and their like, `ATerm` that of dots.

In scripts with spaces, white space must follow. Behind dots, and behind a single line break, a small letter continues
the sentence.
"""

_LAST_STOP = regex.compile(
    rf"""(?r)
    (?: [\p{{Sentence_Break=STerm}}\u037e] | (?<!{_unfinished(ABBREVIATIONS + OPEN_ENDS)}) {_DOT} )
    [\s\p{{Sentence_Break=Close}}\p{{Pd}}]*+
    """,
    regex.VERBOSE,
)

_CLAUSE_END = regex.compile(r"(?:\p{Sentence_Break=SContinue}|;)\p{Sentence_Break=Close}*(?:\s+|(?<=[、，：；،]))")
_WHITE_SPACE = regex.compile(r"\s+")


class TextPart(NamedTuple):
    """A part of a text, and the position in the whole text at which it ends."""

    text: str
    end: int


def ends_sentence(text: str, end: int | None = None) -> bool:
    """Says if a sentence ends in `text` at `end`, by default at its end; white space and quotes may be between."""
    return _LAST_STOP.match(text, 0, len(text) if end is None else end) is not None


def sentences(text: str, limit_chars: int, tags: Iterable[str] = ()) -> Iterator[TextPart]:
    """The sentences of `text`, none longer than `limit_chars`, which is at least as long as the longest of `tags`.

    A longer one is cut behind a comma, else at white space, else anywhere but inside a tag, e.g. `<breath>`, or a
    grapheme; only a grapheme that is itself longer than the limit is cut.
    """
    whole = sorted(tags, key=len, reverse=True)
    either = any_of(whole)
    borders = [match.end() for match in regex.finditer(rf"{either}|\X", text)]
    start = 0
    for end in _sentence_ends(text, whole, set(borders)):
        while end - start > limit_chars:
            cut = _best_cut(text, start, start + limit_chars, borders)
            yield TextPart(text[start:cut], cut)
            start = cut
        yield TextPart(text[start:end], end)
        start = end


def passages(text: str, limit_chars: int, tags: Iterable[str] = ()) -> Iterator[TextPart]:
    """Parts as of `sentences`, each with as many sentences as fit."""
    passage = ""
    end = 0
    for part in sentences(text, limit_chars, tags):
        if passage and len(passage) + len(part.text) > limit_chars:
            yield TextPart(passage, end)
            passage = ""
        passage, end = passage + part.text, part.end
    if passage:
        yield TextPart(passage, end)


def _sentence_ends(text: str, tags: list[str], borders: set[int]) -> Iterator[int]:
    """No sentence ends inside a tag. A tag that closes a span stays with the sentence before it."""
    ends_of_spans = any_of([tag for tag in tags if tag.startswith("</")])
    closing = rf"(?(DEFINE)(?<closing>((?!\p{{Ps}})\p{{Sentence_Break=Close}}|{ends_of_spans})*+))"
    end = 0
    for match in regex.finditer(f"{closing}(?:{any_of(tags)}|(?<end>{_SENTENCE_END}))", text, regex.VERBOSE):
        if match["end"] and match.end() in borders:
            end = match.end()
            yield end
    if end < len(text):
        yield len(text)


def _best_cut(text: str, start: int, latest: int, borders: list[int]) -> int:
    """The last border up to `latest` that is behind a comma, else behind white space, else any.

    The first third does not count for commas and spaces: a scrap sounds worse than a cut elsewhere.
    """
    near = borders[bisect_right(borders, start) : bisect_right(borders, latest)]
    for pattern in (_CLAUSE_END, _WHITE_SPACE):
        ends = [match.end() for match in pattern.finditer(text, start + (latest - start) // 3, latest)]
        if good := set(near).intersection(ends):
            return max(good)
    return near[-1] if near else latest


def any_of(tags: Iterable[str]) -> str:
    """A pattern for `tags`, the longest first; without any, one that nothing matches."""
    return "|".join(map(regex.escape, sorted(tags, key=len, reverse=True))) or "(?!)"
