"""From the words that a model heard in a window to passages: a sentence or so each, none of it invented.

sentences(words)              cut where a sentence ends, where somebody pauses, or where it gets long
is_heard(passage, spoken)     whether anybody spoke there
breathless(words)             how much of it nobody could have said
in_order(segments, ...)       their times within the recording, one after the other
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from contract.transcription.engine import Segment, TimedWord
from models.transcription.voice_activity import Span
from text.sentences import ends_sentence

PAUSE_S = 1.0
"""A passage ends before a longer silence."""

LONG_S = 12.0
"""A passage ends at the next comma after so long, and at any word after half as much again: subtitles are read."""

COMMAS = tuple(",;:،、，；：")

SHORTEST_S = 0.03
"""No word takes less. Those of a loop pile up at a place where nothing of the kind is said."""

TOLERANCE_S = 0.3
"""How far a word may lie beside the speech: times of words are good to some tenths."""


def sentences(words: Iterable[TimedWord]) -> Iterator[list[TimedWord]]:
    """The words in passages. Text of words is as the model wrote it, with the spaces before and after."""
    passage: list[TimedWord] = []
    for word in words:
        if passage and word.start - passage[-1].end > PAUSE_S:
            yield passage
            passage = []
        passage.append(word)
        if _ends(passage):
            yield passage
            passage = []
    if passage:
        yield passage


def _ends(passage: Sequence[TimedWord]) -> bool:
    text = passage[-1].text.rstrip()
    seconds = passage[-1].end - passage[0].start
    return ends_sentence(text) or (seconds > LONG_S and text.endswith(COMMAS)) or seconds > 1.5 * LONG_S


def is_heard(passage: Sequence[TimedWord], spoken: Iterable[Span]) -> bool:
    """Whether somebody speaks while the words are said: models fill silence with words that they often saw there."""
    start, end = passage[0].start - TOLERANCE_S, passage[-1].end + TOLERANCE_S
    return any(span.start < end and start < span.end for span in spoken)


def lasts(word: TimedWord) -> bool:
    """Whether it takes the time that a word needs."""
    return word.end - word.start >= SHORTEST_S


def breathless(words: Sequence[TimedWord]) -> float:
    """Share of the words that take no time: nearly 0 where somebody repeats himself, a third and more in a loop."""
    return sum(not lasts(word) for word in words) / len(words) if words else 0.0


def in_order(segments: Iterable[Segment], after_s: float, duration_s: float) -> Iterator[Segment]:
    """Times within the recording, none before one that came earlier."""
    for segment in segments:
        at, words = after_s, []
        for word in segment.words:
            start = min(max(word.start, at), duration_s)
            at = min(max(word.end, start), duration_s)
            words.append(replace(word, start=start, end=at))
        start = words[0].start if words else min(max(segment.start, after_s), duration_s)
        after_s = words[-1].end if words else min(max(segment.end, start), duration_s)
        yield replace(segment, start=start, end=after_s, words=tuple(words))
