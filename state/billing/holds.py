"""How the money of one request is held, where there is a limit: from a purse, or in a row of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from contract.access import Caller
from contract.errors import Fault, without_text
from state.billing import postings
from state.billing.purse import Purses
from state.billing.reservation import Reservation
from state.billing.upkeep import Marks, needs_row
from state.billing.usage import Entry, OverLimit, over_limit
from state.database.base import Database

T = TypeVar("T")
log = logging.getLogger(f"parlance.{__name__}")


class Holds:
    """Holds, tops up and releases for the requests of one process."""

    def __init__(
        self,
        database: Database,
        purses: Purses,
        marks: Marks,
        spawn: Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]],
    ) -> None:
        self._database = database
        self._purses = purses
        self._marks = marks
        self._spawn = spawn

    async def hold(self, hold: Reservation, may_take: bool) -> None:
        """Holds its money, from a purse if it may and can. Raises what `Ledger.reserve` raises."""
        if may_take:
            hold.purse = await self._purses.take((hold.caller.org_id, hold.caller.user_id), hold.held_micro_eur)
        if hold.purse is None:
            try:
                await self._to_the_limit(hold.entry, lambda: self._in_a_row(hold))
            except OverLimit as refused:
                raise over_limit(refused, hold.caller) from None

    async def _to_the_limit(self, entry: Entry, post: Callable[[], Awaitable[T]]) -> T:
        """What `post` returns: near a limit, what the purses have free is for whoever needs it. Raises OverLimit."""
        while True:
            try:
                return await post()
            except OverLimit:
                emptying = self._purses.empty(entry.org_id)
                if not emptying:
                    raise
                await asyncio.wait(emptying)

    async def _in_a_row(self, hold: Reservation) -> None:
        transaction = partial(postings.reserve, entry=hold.entry, amount=hold.held_micro_eur)
        hold.is_stored = True
        # Not durable: a crash that loses the row also ends this process and its request.
        posting = self._spawn(self._database.run(transaction, durable=False, row=hold.entry.org_id))
        try:
            await asyncio.shield(posting)
        except asyncio.CancelledError:
            # The client disconnected while the money was being held; nobody is left to settle it.
            self._spawn(self._void_after(posting, hold.entry))
            raise

    async def _void_after(self, posting: asyncio.Task[None], entry: Entry) -> None:
        await asyncio.wait([posting])
        if not posting.cancelled() and posting.exception() is None:
            await self.void(entry)

    async def top_up(self, hold: Reservation, amount: int) -> bool:
        """Holds `amount` micro-EUR more. Returns False if the reservation has ended. Raises OverLimit."""
        await self._marks.written(hold.entry)
        if hold.purse and not hold.is_stored and hold.purse.take(amount):
            return not hold.has_ended
        if needs_row(hold):
            await self._marks.record([hold])
        used = hold.used
        transaction = partial(postings.top_up, entry=hold.entry, amount=amount, used=used)
        run = partial(self._database.run, transaction, durable=False, row=hold.entry.org_id)
        is_held = await self._to_the_limit(hold.entry, run)
        hold.marked = used
        return is_held

    async def void(self, entry: Entry) -> None:
        """Releases what is held in a row. If that fails, the lease expires and a reaper does it."""
        await self._marks.written(entry)
        try:
            await self._database.run(partial(postings.void, entry=entry), row=entry.org_id)
        except Exception as error:
            log.error("could not release the reservation of request %s yet: %s", entry.request_id, without_text(error))

    async def require_room(self, caller: Caller, fault: Fault | None) -> None:
        """See `Ledger.require_room`."""
        if self._purses.has_any((caller.org_id, caller.user_id)):
            return
        try:
            await self._database.run(partial(postings.require_room, org_id=caller.org_id, user_id=caller.user_id))
        except OverLimit as refused:
            raise over_limit(refused, caller, fault) from None
