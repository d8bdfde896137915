"""Account of every second that a session received.

    received = speech + silence, speech = transcribed + untranscribed + pending

It counts samples, so that the sums hold exactly. At the end nothing is pending. A turn is billed once, when it is no
longer pending, by whole seconds.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from audio.listener import RATE
from autoscaling.metrics import Metrics
from contract.telemetry import LIVE_SECONDS
from deployments.ingress.flows.realtime.turns import LiveTurn

UNHEARD_PIECES = 100
"""Pieces that are listed; the oldest are left out first, and still counted."""


class UnheardPiece(NamedTuple):
    """Speech without a text, in samples of the session.

    `why` is `error.code` of a failure, `cleared` by the client, or `session_ended`.
    """

    start: int
    end: int
    why: str


class SecondsLedger:
    """Account of one session, in samples.

    Attributes:
        billed_s: whole seconds of all turns, each rounded up.
        pieces: speech without a text.
    """

    def __init__(self) -> None:
        self.received = self.transcribed = self.untranscribed = self.billed_s = 0
        self.pieces: list[UnheardPiece] = []
        self._pending: dict[LiveTurn, None] = {}

    def open(self, turn: LiveTurn) -> None:
        """Adds speech that has begun. Its length is that of the turn."""
        self._pending[turn] = None

    def mark_transcribed(self, turn: LiveTurn) -> None:
        """Ends a pending turn that has its text."""
        self._end(turn, turn.end, turn.end, "")

    def mark_untranscribed(self, turn: LiveTurn, why: str, *, owes_begun: bool) -> None:
        """Ends a pending turn without a text, but for the words that were reported.

        Those are billed. Where it `owes_begun`, so is the rest that an engine has begun to transcribe.
        """
        self._end(turn, turn.reported_until, turn.owed_until if owes_begun else turn.reported_until, why)

    def end(self, *, owes_begun: bool) -> None:
        """Ends every pending turn without a text."""
        for turn in list(self._pending):
            self.mark_untranscribed(turn, "session_ended", owes_begun=owes_begun)

    def _end(self, turn: LiveTurn, text_until: int, owed_until: int, why: str) -> None:
        if turn not in self._pending:
            return
        del self._pending[turn]
        text_until, owed_until = (min(max(turn.start, position), turn.end) for position in (text_until, owed_until))
        self.transcribed += text_until - turn.start
        self.untranscribed += turn.end - text_until
        self.billed_s += _whole_s(owed_until - turn.start)
        if text_until < turn.end:
            self.pieces.append(UnheardPiece(text_until, turn.end, why))
            del self.pieces[:-UNHEARD_PIECES]

    def report(self, metrics: Metrics) -> None:
        """Counts the seconds among those of all sessions."""
        kinds = {"heard": self.transcribed, "unheard": self.untranscribed, "silence": self.silence}
        for kind, samples in kinds.items():
            metrics.totals[LIVE_SECONDS, (kind,)] += samples / RATE

    @property
    def most_s(self) -> int:
        """Seconds that are billed if every pending turn gets its text."""
        return self.billed_s + sum(_whole_s(turn.end - turn.start) for turn in self._pending)

    @property
    def pending(self) -> int:
        """Samples of turns that are open or on their way."""
        return sum(turn.end - turn.start for turn in self._pending)

    @property
    def speech(self) -> int:
        return self.transcribed + self.untranscribed + self.pending

    @property
    def silence(self) -> int:
        return self.received - self.speech

    def object(self) -> dict[str, Any]:
        """The account in seconds, in the form of the events."""
        columns = {
            "received": self.received,
            "speech": self.speech,
            "silence": self.silence,
            "heard": self.transcribed,
            "unheard": self.untranscribed,
            "pending": self.pending,
        }
        # Whole in binary: a sample is 1/16000 s, and its rounding would break the sums.
        seconds: dict[str, Any] = {f"{name}_s": samples / RATE for name, samples in columns.items()}
        pieces = [
            {"start_ms": piece.start * 1000 // RATE, "end_ms": piece.end * 1000 // RATE, "why": piece.why}
            for piece in self.pieces
        ]
        return seconds | {"billed_s": self.billed_s, "unheard": pieces}


def _whole_s(samples: int) -> int:
    return math.ceil(samples / RATE)
