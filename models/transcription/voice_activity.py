"""Where in a recording somebody speaks: Silero's network, from the wheel of faster-whisper. No download."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np

SAMPLE_RATE = 16_000
MIN_SILENCE_MS = 160


class Span(NamedTuple):
    """From where to where, in seconds."""

    start: float
    end: float


def spoken(samples: np.ndarray[Any, np.dtype[np.float32]], max_s: float = 30.0) -> list[Span]:
    """Passages of at most `max_s` seconds in which somebody speaks, in order. `samples` are float32 [n] at 16 kHz."""
    from faster_whisper.vad import VadOptions, get_speech_timestamps

    options = VadOptions(max_speech_duration_s=max_s, min_silence_duration_ms=MIN_SILENCE_MS)
    found = get_speech_timestamps(samples, options)
    return [Span(part["start"] / SAMPLE_RATE, part["end"] / SAMPLE_RATE) for part in found]
