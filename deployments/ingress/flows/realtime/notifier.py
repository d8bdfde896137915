"""Reports the turns of a session to its client, keeps the ledger, and bills."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any

from contract.errors import RATE_LIMIT_EXCEEDED, ApiError
from contract.realtime.replies import BUFFER, TRANSCRIPTION, error_object, item_object
from contract.telemetry import LIVE_TURNS, Outcome
from deployments.ingress.context import RequestContext
from deployments.ingress.flows.realtime.ledger import SecondsLedger
from deployments.ingress.flows.realtime.turns import MS, LiveTurn
from deployments.ingress.flows.realtime.wire import POLICY, Wire
from state.billing.reservation import TIME_LIMITS, Account

MINUTE_S = 60
"""Seconds that are reserved at a time."""


class SessionNotifier:
    """Receives the events of a session's turns.

    Attributes:
        account: the bill, from the first sound on.
        rate_until_s: `time.monotonic()` from which no turn waits for the rate of its key: the session ends.
        transcribed_at_s: `time.monotonic()` of the last turn that was transcribed; at first, of the beginning.
    """

    def __init__(self, context: RequestContext, wire: Wire) -> None:
        self.ledger = SecondsLedger()
        self.account: Account | None = None
        self.rate_until_s = math.inf
        self.transcribed_at_s = time.monotonic()
        self._context, self._wire = context, wire
        self._last_item: str | None = None

    async def refuse(self, error: ApiError, event_id: str | None = None) -> None:
        """Reports an error of the event `event_id`, which ends the session where it is of money or the key."""
        await self._wire.send("error", error=error_object(error) | {"event_id": event_id})
        if error.fault.status in (401, 402):
            self._context.trace.fault = error.fault
            await self._wire.close(POLICY, error.message)

    async def reserve(self) -> None:
        """Reserves the price of all turns that are pending, by the minute. Raises a spend limit."""
        if self.account:
            await self.account.expect(audio_seconds=MINUTE_S * math.ceil(self.ledger.most_s / MINUTE_S))

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
        await self._report_words(turn, text.split()[:-1])
        if turn.sent:
            turn.reported_until = turn.draft_end

    async def transcribed(self, turn: LiveTurn, text: str) -> None:
        """Reports the text of a turn, and bills it."""
        await self._report_words(turn, text.split())
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
        if self.account and self.ledger.billed_s:
            await self.account.settle(audio_seconds=self.ledger.billed_s)

    async def _bill(self) -> None:
        try:
            if self.account:
                await self.account.progress(audio_seconds=self.ledger.billed_s)
        except ApiError as error:
            await self.refuse(error)

    async def _report_words(self, turn: LiveTurn, words: list[str]) -> None:
        """Sends what is new. No word is taken back: a text that differs continues behind it."""
        if len(words) > turn.sent:
            text = (" " if turn.sent else "") + " ".join(words[turn.sent :])
            turn.sent = len(words)
            await self._report(turn, "delta", delta=text)

    async def _report(self, turn: LiveTurn, step: str, **members: Any) -> None:
        await self._wire.send(f"{TRANSCRIPTION}.{step}", item_id=turn.item_id, content_index=0, **members)

    def _count(self, outcome: Outcome) -> None:
        model = self._context.trace.model
        assert model
        self._context.service.metrics.totals[LIVE_TURNS, (model.id, outcome)] += 1
