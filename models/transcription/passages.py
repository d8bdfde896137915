"""A recording cut into passages of speech, for an engine that hears one at a time and times no words."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from models.transcription.adapter import Recording
from models.transcription.voice_activity import WINDOW_S, Span, blocks

ENOUGH_S = 10.0
"""A passage this long is not joined with the next: longer ones say less about when something was said."""

PAUSE_S = 0.2
"""Between spans that are joined. Spans are wider than the speech in them, by up to 0.4 s on each side."""


async def passages(recording: Recording) -> AsyncGenerator[Span, None]:
    """Passages of at most WINDOW_S seconds in which somebody speaks, in order; none in silence."""
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
    found = blocks(recording.samples, recording.sound.seconds)
    while block := await asyncio.to_thread(next, found, None):
        for window in block.windows:
            for span in window.spoken:
                yield span


def _belong_together(held: Span, span: Span) -> bool:
    return span.start - held.end <= PAUSE_S and held.end - held.start < ENOUGH_S and span.end - held.start <= WINDOW_S
