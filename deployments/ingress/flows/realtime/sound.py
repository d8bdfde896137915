"""The samples of a session that are not done with: 16-bit, 16 kHz, one channel. Positions count from its first one."""

from __future__ import annotations

import math
import struct

from audio.listener import RATE
from contract.errors import BUFFER_FULL, ApiError
from contract.realtime.limits import REALTIME_BUFFER_S, REALTIME_UNHEARD_S

_WAV = struct.Struct("<4sI4s4sIHHIIHH4sI")


class SessionSound:
    """What was received last, from `start` to `end`."""

    def __init__(self) -> None:
        self.start = self.end = 0
        self._samples = bytearray()

    @property
    def seconds(self) -> float:
        return (self.end - self.start) / RATE

    def add(self, samples: bytes) -> None:
        """Takes what comes next."""
        self._samples += samples
        self.end += len(samples) // 2

    def forget_before(self, position: int) -> None:
        """Drops what nobody will hear again."""
        if position > self.start:
            del self._samples[: 2 * (position - self.start)]
            self.start = position

    def wav(self, start: int, end: int) -> bytes:
        """A WAV file of a part."""
        samples = self._samples[2 * (start - self.start) : 2 * (end - self.start)]
        size = len(samples)
        head = (b"RIFF", 36 + size, b"WAVE", b"fmt ", 16, 1, 1, RATE, 2 * RATE, 2, 16, b"data", size)
        return _WAV.pack(*head) + bytes(samples)


class Pace:
    """How far the sound that came is ahead of real time. What comes as fast as people speak is never ahead."""

    def __init__(self) -> None:
        self._ahead_s = self._at_s = 0.0

    def take(self, seconds: float, waiting_s: float, now_s: float) -> None:
        """Counts so many seconds of sound, while `waiting_s` wait to be written down.

        Raises BUFFER_FULL, and counts nothing then.
        """
        ahead_s = max(0.0, self._ahead_s - (now_s - self._at_s)) + seconds
        excess_s = min(ahead_s, waiting_s + seconds) - REALTIME_BUFFER_S
        if seconds > REALTIME_BUFFER_S:
            raise BUFFER_FULL(f"{seconds:.1f} s of sound came at once; send at most {REALTIME_BUFFER_S} s in an event")
        if excess_s > 0:
            raise _full(f"{waiting_s:.1f} s of sound wait, ahead of real time; {REALTIME_BUFFER_S} s may", excess_s)
        if waiting_s + seconds > REALTIME_UNHEARD_S:
            raise _full(f"{waiting_s:.1f} s of sound wait to be committed or heard; {REALTIME_UNHEARD_S} s may", 5.0)
        self._ahead_s, self._at_s = ahead_s, now_s


def _full(state: str, wait_s: float) -> ApiError:
    return BUFFER_FULL(
        f"{state}. This sound was not taken: send it again",
        param="audio",
        extra={"retry_after_ms": math.ceil(1000 * min(wait_s, 5.0))},
    )
