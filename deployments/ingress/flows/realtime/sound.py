"""The samples of a session that are not done with: 16-bit, 16 kHz, one channel. Positions count from its first one."""

from __future__ import annotations

import struct

from audio.listener import RATE

_WAV = struct.Struct("<4sI4s4sIHHIIHH4sI")


class Sound:
    """What was received last, from `start` to `end`."""

    def __init__(self) -> None:
        self.start = self.end = 0
        self._samples = bytearray()

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
