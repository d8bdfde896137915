"""Reports the turns of a session to its client, keeps the account of every second that it received, and bills.

    received = speech + silence, speech = transcribed + untranscribed + pending

The account counts samples, so that the sums hold exactly. At the end nothing is pending. A turn is billed once, when it
is no longer pending, by whole seconds.
"""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any, NamedTuple, Protocol

from audio.listener import RATE
from autoscaling.metrics import Metrics
from contract.errors import RATE_LIMIT_EXCEEDED, ApiError
from contract.realtime.events import BUFFER, TRANSCRIPTION, error_object, item_object
from contract.telemetry import LIVE_SECONDS, LIVE_TURNS, Outcome
from contract.transcription.engine import words
from deployments.ingress.context import RequestContext
from deployments.ingress.flows.realtime.turns import MS, LiveTurn
from state.billing.reservation import TIME_LIMITS, OpenBill

NORMAL, POLICY = 1000, 1008
"""Codes with which a websocket is closed."""


class Wire(Protocol):
    """The way to the client. Nothing is sent to a client that has gone, and no error raised."""

    async def send(self, type: str, **members: Any) -> None:
        """Sends an event, after those before it. All times in events count from the first sound of the session."""
        ...

    async def close(self, code: int, reason: str) -> None:
        """Ends the connection; `reason` is a sentence."""
        ...


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


MINUTE_S = 60
"""Seconds that are reserved at a time."""


class SessionNotifier:
    """Receives the events of a session's turns.

    Attributes:
        bill: opened with the first sound.
        rate_until_s: `time.monotonic()` from which no turn waits for the rate of its key: the session ends.
        transcribed_at_s: `time.monotonic()` of the last turn that was transcribed; at first, of the beginning.
    """

    def __init__(self, context: RequestContext, wire: Wire) -> None:
        self.ledger = SecondsLedger()
        self.bill: OpenBill | None = None
        self.rate_until_s = math.inf
        self.transcribed_at_s = time.monotonic()
        self._context, self._wire = context, wire
        self._last_item: str | None = None

    async def refuse(self, error: ApiError, event_id: str | None = None) -> None:
        """Reports an error of the event `event_id`, which ends the session where it is of money or the key."""
        await self._wire.send("error", error=error_object(error) | {"event_id": event_id})
        if error.fault.status in (401, 402):
            self._context.exchange.fault = error.fault
            await self._wire.close(POLICY, error.message)

    async def reserve(self) -> None:
        """Reserves the price of all turns that are pending, by the minute. Raises a spend limit."""
        if self.bill:
            await self.bill.expect(audio_seconds=MINUTE_S * math.ceil(self.ledger.most_s / MINUTE_S))

    async def count(self, turn: LiveTurn) -> None:
        """Counts a turn that ends as a request of its key, once. Raises RATE_LIMIT_EXCEEDED."""
        if not turn.is_counted:
            rate = await self._context.service.state.rates.hit(self._context.caller)
            if not rate.allowed:
                raise RATE_LIMIT_EXCEEDED(
                    f"a turn counts as a request, and {rate.limit} were sent in a minute; the sound of this turn is "
                    f"kept, and can be transcribed in {rate.reset_s} s",
                    retry_after_s=rate.reset_s,
                )
            turn.is_counted = True

    async def wait_for_rate(self, turn: LiveTurn) -> None:
        """Returns once the turn is counted. Where the key has no requests left, its client is informed once.

        Raises RATE_LIMIT_EXCEEDED after `rate_until_s`.
        """
        is_reported = False
        while True:
            try:
                return await self.count(turn)
            except ApiError as error:
                if time.monotonic() >= self.rate_until_s:
                    raise
                if not is_reported:
                    await self.refuse(error)
                is_reported = True
                await asyncio.sleep(error.retry_after_s or 1)

    async def started(self, turn: LiveTurn, *, is_detected: bool) -> None:
        """Opens a turn. Of one that the client commits, nothing is reported before."""
        self.ledger.open(turn)
        if is_detected:
            await self._wire.send(f"{BUFFER}.speech_started", item_id=turn.item_id, audio_start_ms=turn.start // MS)

    async def stopped(self, turn: LiveTurn, *, is_detected: bool) -> bool:
        """Makes the turn an item of the conversation. Returns whether its price could be reserved."""
        if is_detected:
            await self._wire.send(f"{BUFFER}.speech_stopped", item_id=turn.item_id, audio_end_ms=turn.end // MS)
        item, before = item_object(turn.item_id), self._last_item
        await self._wire.send(f"{BUFFER}.committed", item_id=turn.item_id, previous_item_id=before)
        for step in ("added", "done"):
            await self._wire.send(f"conversation.item.{step}", item=item, previous_item_id=before)
        self._last_item = turn.item_id
        try:
            await self.reserve()
        except ApiError as error:
            await self.failed(turn, error)
            await self.refuse(error)
            return False
        return True

    async def cleared(self, turn: LiveTurn | None) -> None:
        """Discards the turn that was open, and bills what an engine has begun of it."""
        if turn:
            self.ledger.mark_untranscribed(turn, "cleared", owes_begun=True)
        await self._wire.send(f"{BUFFER}.cleared")
        await self._bill()

    async def drafted(self, turn: LiveTurn, text: str) -> None:
        """Reports the words that are new; the last one may be half a word."""
        await self._report_words(turn, words(text)[:-1])
        if turn.sent:
            turn.reported_until = turn.draft_end

    async def transcribed(self, turn: LiveTurn, text: str) -> None:
        """Reports the text of a turn, and bills it."""
        await self._report_words(turn, words(text))
        self.ledger.mark_transcribed(turn)
        self.transcribed_at_s = time.monotonic()
        self._count(Outcome.OK)
        usage = {"type": "duration", "seconds": math.ceil(turn.seconds)}
        await self._report(turn, "completed", transcript=text, usage=usage, parlance={"ledger": self.ledger.object()})
        await self._bill()

    async def failed(self, turn: LiveTurn, error: ApiError) -> None:
        """Reports that a turn stays without a text. A failure of the server costs no more than the words it sent."""
        is_ours = error.fault.status >= 500 and error.fault not in TIME_LIMITS
        self.ledger.mark_untranscribed(turn, error.fault.code, owes_begun=not is_ours)
        self._count(Outcome.FAILED)
        await self._report(turn, "failed", error=error_object(error), parlance={"ledger": self.ledger.object()})

    async def end(self, *, owes_begun: bool) -> None:
        """Settles the bill. Pending turns owe what an engine has begun, unless the session dies of an error."""
        self.ledger.end(owes_begun=owes_begun)
        self.ledger.report(self._context.service.metrics)
        if self.bill and self.ledger.billed_s:
            await self.bill.settle(audio_seconds=self.ledger.billed_s)

    async def _bill(self) -> None:
        try:
            if self.bill:
                await self.bill.progress(audio_seconds=self.ledger.billed_s)
        except ApiError as error:
            await self.refuse(error)

    async def _report_words(self, turn: LiveTurn, spoken: list[str]) -> None:
        """Sends what is new. No word is taken back: a text that differs continues behind it."""
        if len(spoken) > turn.sent:
            text = "".join(spoken[turn.sent :])
            turn.sent = len(spoken)
            await self._report(turn, "delta", delta=text)

    async def _report(self, turn: LiveTurn, step: str, **members: Any) -> None:
        await self._wire.send(f"{TRANSCRIPTION}.{step}", item_id=turn.item_id, content_index=0, **members)

    def _count(self, outcome: Outcome) -> None:
        model = self._context.exchange.model
        assert model
        self._context.service.metrics.totals[LIVE_TURNS, (model.id, outcome)] += 1
