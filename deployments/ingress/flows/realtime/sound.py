"""The samples of a session that are not done with: 16-bit, 16 kHz, one channel. Positions count from its first one."""

from __future__ import annotations

import math

from audio.listener import RATE
from contract.errors import BUFFER_FULL, ApiError
from contract.realtime.limits import REALTIME_BUFFER_S, REALTIME_SPEED, REALTIME_UNHEARD_S
from contract.speech.engine import Clip
from deployments.ingress.verifier import wav

PAUSE_S = (1.0, 5.0)
"""Seconds for which nothing is taken once too much waits, at least and at most."""


class SessionSound:
    """Samples that were received last, from `start` to `end`."""

    def __init__(self) -> None:
        self.start = self.end = 0
        self._samples = bytearray()

    @property
    def seconds(self) -> float:
        return (self.end - self.start) / RATE

    def add(self, samples: bytes) -> None:
        """Appends samples."""
        self._samples += samples
        self.end += len(samples) // 2

    def forget_before(self, position: int) -> None:
        """Drops the samples before a position."""
        if position > self.start:
            del self._samples[: 2 * (position - self.start)]
            self.start = position

    def wav(self, start: int, end: int) -> bytes:
        """A WAV file of a part."""
        samples = self._samples[2 * (start - self.start) : 2 * (end - self.start)]
        return wav(Clip(bytes(samples), RATE))


class Pace:
    """Sound of one session ahead of real time. What comes as fast as people speak is never ahead.

    Sound that does not wait to be transcribed, as silence, may come REALTIME_SPEED times as fast.

    After a refusal nothing is taken before the time that it named: what a client has sent behind the refused sound is
    refused with it, so that the client can send all of it again in order.
    """

    def __init__(self) -> None:
        self._ahead_s = self._rushed_s = self._at_s = self._closed_until_s = 0.0

    def take(self, seconds: float, waiting_s: float, now_s: float) -> None:
        """Counts that many seconds of sound, while `waiting_s` wait for a transcript.

        Raises BUFFER_FULL, and counts nothing then.
        """
        if seconds > REALTIME_BUFFER_S:
            raise BUFFER_FULL(f"{seconds:.1f} s of sound came at once; send at most {REALTIME_BUFFER_S} s in an event")
        if now_s < self._closed_until_s:
            raise _full("sound before this was not taken", self._closed_until_s - now_s)
        passed_s = now_s - self._at_s
        ahead_s = max(0.0, self._ahead_s - passed_s) + seconds
        rushed_s = max(0.0, self._rushed_s - REALTIME_SPEED * passed_s) + seconds
        excess_s = min(ahead_s, waiting_s + seconds) - REALTIME_BUFFER_S
        if excess_s > 0:
            state = f"{waiting_s:.1f} s of sound wait, ahead of real time; {REALTIME_BUFFER_S} s may"
            raise self._closed(state, excess_s, now_s)
        if (excess_s := rushed_s - REALTIME_BUFFER_S) > 0:
            state = f"sound came {excess_s:.1f} s too early; it may come {REALTIME_SPEED} times as fast as speech"
            raise self._closed(state, excess_s / REALTIME_SPEED, now_s)
        if waiting_s + seconds > REALTIME_UNHEARD_S:
            state = f"{waiting_s:.1f} s of sound wait to be committed or transcribed; {REALTIME_UNHEARD_S} s may"
            raise self._closed(state, PAUSE_S[1], now_s)
        self._ahead_s, self._rushed_s, self._at_s = ahead_s, rushed_s, now_s

    def _closed(self, state: str, wait_s: float, now_s: float) -> ApiError:
        wait_s = min(max(wait_s, PAUSE_S[0]), PAUSE_S[1])
        self._closed_until_s = now_s + wait_s
        return _full(state, wait_s)


def _full(state: str, wait_s: float) -> ApiError:
    return BUFFER_FULL(
        f"{state}. This sound was not taken: send it again",
        param="audio",
        extra={"retry_after_ms": math.ceil(1000 * wait_s)},
    )
