"""Where sentences of a transcript begin, and how long the speaker was silent before. All by the index of a token."""

from __future__ import annotations

from collections.abc import Sequence

import regex

from contract.transcription.engine import Segment
from text.formatting.tokens import STOPS, WHITE, Token, normal

_ABBREVIATIONS = """
dr prof hr hrn fr nr no nos str bzw ca vgl evtl ggf inkl zzgl usw etc mr mrs ms st vs approx dept mme mlle sr sra dott
sig dhr mevr
"""
ABBREVIATIONS = frozenset(_ABBREVIATIONS.split())
"""Words that end with a point and seldom end a sentence."""

FULL_STOPS = tuple(stop for stop in STOPS if stop not in ":;\uff1a\uff1b")
WIDE_STOPS = "\u3002\uff01\uff1f\uff0e"
"""After these no space follows."""

YEAR_DIGITS = 4
"""A shorter number with a point is an ordinal: `12. Mai`."""

_WHITE = regex.compile(f"[{WHITE}]+", regex.VERSION1)
_LETTER = regex.compile(r"[\p{L}\p{N}]")


def sentence_starts(found: Sequence[Token]) -> list[bool]:
    """Whether a sentence begins with each token. The first one begins one."""
    return [index == 0 or _starts(found[index - 1], token) for index, token in enumerate(found)]


def _starts(previous: Token, token: Token) -> bool:
    gap = token.before
    stops = [stop for stop in FULL_STOPS if stop in gap]
    if not stops or (not any(stop in gap for stop in WIDE_STOPS) and not _WHITE.search(gap)):
        return False
    if stops != ["."]:
        return True
    if previous.kind == "number":
        return len(previous.text) >= YEAR_DIGITS
    return len(previous.text) > 1 and previous.text not in ABBREVIATIONS


def pauses(transcript: str, found: Sequence[Token], segments: Sequence[Segment]) -> dict[int, float]:
    """Seconds of silence before a token with which a passage begins.

    `segments` are looked up in `transcript`, in which they follow one another; where they do not, nothing is known.
    """
    silences = _silences(normal(transcript), segments)
    return {index: silences[token.start] for index, token in enumerate(found) if token.start in silences}


def _silences(text: str, segments: Sequence[Segment]) -> dict[int, float]:
    """By the position of the first token of a passage, as near as its first letter."""
    found: dict[int, float] = {}
    place, end_s = 0, None
    for segment in segments:
        passage = normal(segment.text)
        if not passage:
            continue
        place = _skip_white(text, place)
        if not text.startswith(passage, place):
            return found
        if end_s is not None:
            first = _first_letter(passage)
            found[place + first] = max(0.0, segment.start - end_s)
        place, end_s = place + len(passage), segment.end
    return found


def _skip_white(text: str, place: int) -> int:
    match = _WHITE.match(text, place)
    return match.end() if match else place


def _first_letter(passage: str) -> int:
    match = _LETTER.search(passage)
    return match.start() if match else 0
