"""What Whisper says of its own text, and when not to believe it. It fills what it does not understand with loops.

is_no_speech(segment)    nobody spoke; leave it out
is_doubtful(segment)     hear the window again
is_bearable(segment)     better than nothing, where a second hearing is no better

A segment is one of faster-whisper's, its words ours.
"""

from __future__ import annotations

from typing import Any

from models.transcription.segments import breathless

MAX_REPETITION = 2.4
"""How often shorter a text may become when it is compressed; this and the next two are Whisper's own bounds."""

MIN_LOGPROB = -1.0
MAX_NO_SPEECH = 0.6

LOOP_BREATHLESS, MAX_BREATHLESS = 0.15, 0.5
"""Shares of words that take no time: where a repetition is a loop, and where nothing of it can be kept."""

BEARABLE_LOGPROB = -1.5
"""What mumbled words may have. Noise that passes for a voice has less than -2."""


def is_no_speech(segment: Any) -> bool:
    """Whether there was no voice, by the model's own judgement."""
    return bool(segment.no_speech_prob > MAX_NO_SPEECH and segment.avg_logprob < MIN_LOGPROB)


def is_doubtful(segment: Any) -> bool:
    """Whether the text is improbable, a loop, or none of its words has a place in the sound."""
    if is_no_speech(segment) or not segment.text.strip():
        return False
    return bool(segment.avg_logprob < MIN_LOGPROB or not segment.words or _is_loop(segment))


def is_bearable(segment: Any) -> bool:
    """Whether to keep a doubtful text, less the words that take no time."""
    return bool(segment.avg_logprob >= BEARABLE_LOGPROB and breathless(segment.words) <= MAX_BREATHLESS)


def _is_loop(segment: Any) -> bool:
    """Whether words repeat that nobody repeats. Somebody who says the same again takes the time for it."""
    return bool(segment.compression_ratio > MAX_REPETITION and breathless(segment.words) > LOOP_BREATHLESS)
