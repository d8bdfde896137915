"""What became of every second that a session received.

    received = speech + silence, speech = heard + unheard + pending

It counts samples, so that the sums hold exactly. At the end nothing is pending.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from audio.listener import RATE
from autoscaling.metrics import Metrics
from contract.telemetry import LIVE_SECONDS
from deployments.ingress.flows.realtime.turns import LiveTurn

Why = str
"""Why a piece was not heard: `error.code` of what failed, `cleared` by the client, or `session_ended` before it was."""

UNHEARD_PIECES = 100
"""That are listed; the oldest are left out first, and counted still."""


class UnheardPiece(NamedTuple):
    """Speech without a text, in samples of the session."""

    start: int
    end: int
    why: Why


class SecondsLedger:
    """The account of one session, in samples."""

    def __init__(self) -> None:
        self.received = self.heard = self.unheard = 0
        self.pieces: list[UnheardPiece] = []
        self._pending: dict[LiveTurn, None] = {}

    def receive(self, samples: int) -> None:
        self.received += samples

    def open(self, turn: LiveTurn) -> None:
        """Speech that has begun. Its length is known from the turn itself."""
        self._pending[turn] = None

    def hear(self, turn: LiveTurn) -> None:
        """A turn whose text is known."""
        del self._pending[turn]
        self.heard += turn.end - turn.start

    def lose(self, turn: LiveTurn, why: Why, told_to: int = 0) -> None:
        """A turn whose text nobody will know, but for what was told of it up to `told_to`."""
        del self._pending[turn]
        since = min(max(turn.start, told_to), turn.end)
        self.heard += since - turn.start
        self.unheard += turn.end - since
        if since < turn.end:
            self.pieces.append(UnheardPiece(since, turn.end, why))
            del self.pieces[:-UNHEARD_PIECES]

    def end(self) -> None:
        """Nothing more will be heard."""
        for turn in list(self._pending):
            self.lose(turn, "session_ended", turn.told_to)

    def report(self, metrics: Metrics) -> None:
        """Counts the seconds among those of all sessions."""
        for kind, samples in (("heard", self.heard), ("unheard", self.unheard), ("silence", self.silence)):
            metrics.totals[LIVE_SECONDS, (kind,)] += samples / RATE

    @property
    def pending(self) -> int:
        """Samples of turns that are open or on their way."""
        return sum(turn.end - turn.start for turn in self._pending)

    @property
    def speech(self) -> int:
        return self.heard + self.unheard + self.pending

    @property
    def silence(self) -> int:
        return self.received - self.speech

    def object(self) -> dict[str, Any]:
        """The account in seconds, as clients are told."""
        return {
            "received_s": _seconds(self.received),
            "speech_s": _seconds(self.speech),
            "silence_s": _seconds(self.silence),
            "heard_s": _seconds(self.heard),
            "unheard_s": _seconds(self.unheard),
            "pending_s": _seconds(self.pending),
            "unheard": [
                {"start_ms": piece.start * 1000 // RATE, "end_ms": piece.end * 1000 // RATE, "why": piece.why}
                for piece in self.pieces
            ],
        }


def _seconds(samples: int) -> float:
    """Whole in binary: a sample is 1/16000 s, and its rounding would break the sums."""
    return samples / RATE
