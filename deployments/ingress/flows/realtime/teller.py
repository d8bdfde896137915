"""Tells a client what was heard of its turns, keeps the ledger, and bills what it says."""

from __future__ import annotations

import math

from audio.listener import RATE
from contract.errors import ApiError
from contract.realtime import replies
from contract.telemetry import LIVE_TURNS, Outcome
from deployments.ingress.context import RequestContext
from deployments.ingress.flows.realtime.ledger import SecondsLedger
from deployments.ingress.flows.realtime.turns import MS, LiveTurn
from deployments.ingress.flows.realtime.wire import POLICY, Wire
from state.billing.reservation import Account

MINUTE_S = 60
"""What is reserved at a time."""


class Teller:
    """The audience of a session's ear.

    Attributes:
        account: the bill, from the first sound on.
    """

    def __init__(self, context: RequestContext, wire: Wire) -> None:
        self.ledger = SecondsLedger()
        self.account: Account | None = None
        self._context, self._wire = context, wire
        self._last_item: str | None = None

    async def refuse(self, error: ApiError, event_id: str | None = None) -> None:
        """Tells an error, which ends the session where it is of money or the key."""
        await self._wire.tell(replies.error_event(error, event_id))
        if error.fault.status in (401, 402):
            self._context.trace.fault = error.fault
            await self._wire.close(POLICY, error.message)

    async def started(self, turn: LiveTurn, *, is_detected: bool) -> None:
        """Speech has begun; of a turn that the client commits, nothing is told before."""
        self.ledger.open(turn)
        if is_detected:
            await self._wire.tell(replies.speech_started(turn.item_id, turn.start // MS))

    async def stopped(self, turn: LiveTurn, *, is_detected: bool) -> bool:
        """The turn is an item of the conversation now. Returns whether its price could be reserved: else it is lost."""
        if is_detected:
            await self._wire.tell(replies.speech_stopped(turn.item_id, turn.end // MS))
        for event in replies.committed(turn.item_id, self._last_item):
            await self._wire.tell(event)
        self._last_item = turn.item_id
        try:
            if self.account:
                minutes = math.ceil((self.ledger.heard + self.ledger.pending) / RATE / MINUTE_S)
                await self.account.expect(audio_seconds=MINUTE_S * minutes)
        except ApiError as error:
            await self.failed(turn, error)
            await self.refuse(error)
            return False
        return True

    async def cleared(self, turn: LiveTurn | None) -> None:
        """The turn that was open is dropped. What was told of it was heard, and is billed."""
        if turn:
            self.ledger.lose(turn, "cleared", turn.told_to)
        await self._wire.tell(replies.cleared())
        await self._bill()

    async def drafted(self, turn: LiveTurn, text: str) -> None:
        """Tells the words that are new; the last one may be half a word."""
        await self._tell_words(turn, text.split()[:-1])
        if turn.sent:
            turn.told_to = turn.draft_end

    async def transcribed(self, turn: LiveTurn, text: str) -> None:
        """Tells the text of a turn, and bills it."""
        await self._tell_words(turn, text.split())
        self.ledger.hear(turn)
        self._count(Outcome.OK)
        await self._wire.tell(replies.completed(turn.item_id, text, round(turn.seconds, 3), self.ledger.object()))
        await self._bill()

    async def failed(self, turn: LiveTurn, error: ApiError) -> None:
        """Tells that the text of a turn will stay unknown."""
        self.ledger.lose(turn, error.fault.code, turn.told_to if error.fault.status < 500 else 0)
        self._count(Outcome.FAILED)
        await self._wire.tell(replies.failed(turn.item_id, error, self.ledger.object()))

    async def end(self) -> None:
        """Nothing more will be heard. What was is billed, also where the session dies of an error."""
        self.ledger.end()
        self.ledger.report(self._context.service.metrics)
        if self.account and self.ledger.heard:
            await self.account.settle(audio_seconds=self._billed_s)

    @property
    def _billed_s(self) -> int:
        return math.ceil(self.ledger.heard / RATE)

    async def _bill(self) -> None:
        """Bills what was heard up to now."""
        try:
            if self.account:
                await self.account.progress(audio_seconds=self._billed_s)
        except ApiError as error:
            await self.refuse(error)

    async def _tell_words(self, turn: LiveTurn, words: list[str]) -> None:
        """What was told is never taken back: a text that says otherwise goes on behind it."""
        if len(words) > turn.sent:
            text = (" " if turn.sent else "") + " ".join(words[turn.sent :])
            turn.sent = len(words)
            await self._wire.tell(replies.delta(turn.item_id, text))

    def _count(self, outcome: Outcome) -> None:
        model = self._context.trace.model
        assert model
        self._context.service.metrics.totals[LIVE_TURNS, (model.id, outcome)] += 1
