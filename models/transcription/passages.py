"""A recording cut into passages of speech, a window at a time: hours of sound are never looked at at once.

    window (2 min) -> where somebody speaks -> short spans joined -> passages, as soon as they are known

What reaches the end of a window is left to the next one, which begins where it began.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable

from models.transcription.adapter import Recording
from models.transcription.voice_activity import Span, spoken

WINDOW_S = 120.0

LONGEST_S = 30.0
"""Of a passage: what Whisper's encoder, and every model with it, hears at once."""

ENOUGH_S = 10.0
"""A passage this long is not joined with the next: longer ones say less about when something was said."""

PAUSE_S = 0.2
"""Between spans that are joined. Spans are wider than the speech in them, by up to 0.4 s on each side."""

REACH_S = 1.0
"""Speech this close to the end of a window may go on after it."""


async def passages(recording: Recording) -> AsyncGenerator[Span, None]:
    """Passages of at most LONGEST_S seconds in which somebody speaks, in order; none in silence."""
    held: Span | None = None
    async for span in _spans(recording):
        if held and _belong_together(held, span):
            held = Span(held.start, span.end)
        else:
            if held:
                yield held
            held = span
    if held:
        yield held


async def _spans(recording: Recording) -> AsyncGenerator[Span, None]:
    start, total = 0.0, recording.sound.seconds
    while start < total:
        end = min(start + WINDOW_S, total)
        found = await asyncio.to_thread(_spoken, recording, start, end)
        whole = found if end == total else list(_ended(found, end - REACH_S))
        for span in whole:
            yield span
        if end == total:
            return
        start = found[len(whole)].start if len(whole) < len(found) else end - REACH_S


def _spoken(recording: Recording, start: float, end: float) -> list[Span]:
    found = spoken(recording.samples(start, end), LONGEST_S)
    return [Span(start + span.start, start + span.end) for span in found]


def _ended(spans: Iterable[Span], before: float) -> Iterable[Span]:
    return (span for span in spans if span.end <= before)


def _belong_together(held: Span, span: Span) -> bool:
    return span.start - held.end <= PAUSE_S and held.end - held.start < ENOUGH_S and span.end - held.start <= LONGEST_S
