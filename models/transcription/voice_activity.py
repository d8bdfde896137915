"""Finds speech in a recording: Silero's network, from the wheel of faster-whisper. No download."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from audio.encoding import Samples

SAMPLE_RATE = 16_000
MIN_SILENCE_MS = 160

THRESHOLDS = (0.5, 0.35)
"""Probabilities from which a moment is speech; the next one where nothing passes the last, as of a child far away.
Noise and music without a voice stay below 0.2, or pass the first one as well."""

BLOCK_S = 300.0
"""Samples in memory at a time: 20 MB, and some 60 MB while the network runs."""

WINDOW_S = 30.0
"""Samples that models take at once."""

MARGIN_S = 1.5
"""Speech so near to the end of a block may go on beyond it."""

REST_S = 3.0
"""Speech of this length holds words."""


class Span(NamedTuple):
    """From where to where, in seconds."""

    start: float
    end: float


class Window(NamedTuple):
    """A part of a recording to be transcribed at once, from its first word to its last, and the speech in it."""

    start: float
    end: float
    spoken: tuple[Span, ...]


class Block(NamedTuple):
    """Some minutes of a recording. All times are of the recording, in seconds.

    Attributes:
        start: of `samples`.
        samples: float32 [n] at 16 kHz.
        windows: ranges to transcribe, in order; they do not overlap.
        done_s: everything before has been looked at, in this block or those before.
    """

    start: float
    samples: Samples
    windows: tuple[Window, ...]
    done_s: float


def spoken(samples: Samples) -> list[Span]:
    """Passages of at most WINDOW_S with speech, in order. `samples` are float32 [n] at 16 kHz."""
    from faster_whisper.vad import VadOptions, get_speech_timestamps

    for threshold in THRESHOLDS:
        options = VadOptions(threshold, max_speech_duration_s=WINDOW_S, min_silence_duration_ms=MIN_SILENCE_MS)
        if parts := get_speech_timestamps(samples, options):
            break
    return [Span(part["start"] / SAMPLE_RATE, part["end"] / SAMPLE_RATE) for part in parts]


def packed(spans: Sequence[Span]) -> list[Window]:
    """The fewest windows of at most WINDOW_S that hold all passages, none of which is longer than that.

    Silence between two passages of a window stays, so that there are never many more windows than the recording has
    half minutes, however the speech is strewn.
    """
    windows: list[Window] = []
    for span in spans:
        if windows and span.end - windows[-1].start <= WINDOW_S:
            start, _, before = windows.pop()
            windows.append(Window(start, span.end, (*before, span)))
        else:
            windows.append(Window(span.start, span.end, (span,)))
    return windows


def rest(window: Window, heard_s: float) -> Window | None:
    """Returns the rest of `window` after `heard_s`, if there is too much speech in it to be the echo of a word."""
    spans = [Span(max(span.start, heard_s), span.end) for span in window.spoken if span.end > heard_s]
    if sum(span.end - span.start for span in spans) < REST_S:
        return None
    return Window(spans[0].start, window.end, tuple(spans))


def blocks(
    read: Callable[[float, float], Samples], duration_s: float, *, find: Callable[[Samples], list[Span]] = spoken
) -> Iterator[Block]:
    """A whole recording. What is spoken is in one window, never in two, also where a block ends.

    Args:
        read: gives the samples between two times of the recording.
        duration_s: of the recording.
        find: passages of speech in samples.
    """
    start, is_last = 0.0, False
    while not is_last:
        end = min(start + BLOCK_S, duration_s)
        is_last = end == duration_s
        samples = read(start, end)
        windows = packed([Span(start + span.start, start + span.end) for span in find(samples)])
        done_s = end
        if not is_last:
            done_s = end - MARGIN_S
            if windows and windows[-1].end > done_s:
                done_s = windows.pop().start  # heard whole, in the next block
        yield Block(start, samples, tuple(windows), done_s)
        start = done_s
