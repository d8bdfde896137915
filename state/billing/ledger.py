"""Spend limits that hold: reserve before an engine is called, settle from what it counted.

    async with await ledger.reserve(caller, line="chat:x", model="x", estimate_micro_eur=40, request_id=...) as hold:
        hold.note(31, quantity=190, unit="tokens")          a stream, as it goes
        await hold.top_up(25)                               and before each further slice
        await hold.settle(52, quantity=310, unit="tokens")  once; a block left without it voids

Callers without a limit hold nothing; their usage line is written all the same. What a stream has noted is recorded
every second (`mark`). If its process dies, another one bills that (`reap`); if it is told to end, it does so itself
(`settle_open`).
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import Counter
from collections.abc import Coroutine
from functools import partial
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from contract.access import Caller
from contract.errors import STATE_UNAVAILABLE, Fault, without_text
from state.billing import postings, upkeep
from state.billing.reservation import SPEND_LIMITS, Bill, Entry, OverLimit, Reservation, over_limit
from state.billing.settling import Settling
from state.database.base import Database

T = TypeVar("T")
log = logging.getLogger(f"parlance.{__name__}")

MARKS_AT_ONCE = 200
RETRY_S = 0.5
MAX_RETRY_S = 5.0
CLOSE_S = 5.0
MAX_TEXT_CHARS = 255


class Ledger:
    """The money of one process.

    Args:
        database: where budgets live; leases are by its clock.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._settling = Settling(database, self.spawn)
        # Weak: a reservation that a bug leaked must not be renewed for ever, its lease has to expire.
        self._open: WeakValueDictionary[str, Reservation] = WeakValueDictionary()
        self._marking: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._unposted: dict[str, Bill] = {}
        self._owing: Counter[int] = Counter()

    async def reserve(
        self, caller: Caller, *, line: str, model: str, estimate_micro_eur: int, request_id: str
    ) -> Reservation:
        """Holds the estimate, at least 1 micro-EUR, against the limits of the caller's organisation and user.

        Raises ORG_SPEND_LIMIT or USER_SPEND_LIMIT, STATE_UNAVAILABLE if the database cannot record it.
        """
        texts = (_storable(text) for text in (request_id, line, model))
        entry = Entry(uuid.uuid4().hex, caller.org_id, caller.user_id, caller.key_id, *texts)
        hold = Reservation(self, entry, caller)
        if caller.org_limited or caller.user_limited:
            hold.held_micro_eur = max(1, estimate_micro_eur)
            await self._reserve(hold)
        elif self._owing[caller.org_id]:
            # Nothing else here would query the database, and what is used now might never be billed.
            raise STATE_UNAVAILABLE()
        self._open[entry.id] = hold
        return hold

    async def require_room(self, caller: Caller, fault: Fault | None = None) -> None:
        """For what is free, but keeps an engine awake: raises what `reserve` would raise of 1 micro-EUR, or `fault`."""
        if not (caller.org_limited or caller.user_limited):
            return
        try:
            await self._database.run(partial(postings.require_room, org_id=caller.org_id, user_id=caller.user_id))
        except OverLimit as refused:
            raise over_limit(refused, caller, fault or SPEND_LIMITS[refused.whose]) from None

    async def mark(self) -> None:
        """Records what the streams of this process have used since the last time.

        Callers without a limit get their row here, so that whoever is done within MARK_S costs none.
        """
        due = [hold for hold in self._open.values() if hold.is_due()]
        for start in range(0, len(due), MARKS_AT_ONCE):
            await self._marked_now([hold for hold in due[start : start + MARKS_AT_ONCE] if not hold.has_ended])

    async def _marked_now(self, holds: list[Reservation]) -> None:
        marking = self.spawn(self._mark(holds))
        self._marking |= dict.fromkeys((hold.entry.id for hold in holds), marking)
        await asyncio.wait([marking])

    async def _mark(self, holds: list[Reservation]) -> None:
        marks = {hold.entry: hold.used for hold in holds}
        new = [hold.entry for hold in holds if not hold.held_micro_eur and hold.marked is None]
        for hold in holds:
            hold.is_stored = True
        try:
            # Not durable: it is a crash of this process that it is for.
            await self._database.run(partial(postings.mark, marks=marks, new=new), durable=False)
        except Exception as error:
            log.error("what %d requests have used is not recorded: %s", len(holds), without_text(error))
        else:
            for hold in holds:
                hold.marked = marks[hold.entry]
        finally:
            for hold in holds:
                self._marking.pop(hold.entry.id, None)

    async def reap(self) -> int:
        """Ends reservations whose lease has expired: bills what was marked. Returns how many."""
        return await upkeep.reap(self._database, lambda id: id in self._open or id in self._unposted)

    async def renew(self) -> None:
        """Extends the leases of this process's reservations."""
        ids = [id for id, hold in self._open.items() if hold.is_stored] + [*self._unposted]
        for start in range(0, len(ids), MARKS_AT_ONCE):
            batch = ids[start : start + MARKS_AT_ONCE]
            await self._database.run(partial(postings.renew, ids=batch), patient=True)

    async def forget_old(self) -> None:
        """Deletes reservations that ended a day ago; their usage lines stay."""
        await upkeep.forget_old(self._database)

    async def settle_open(self) -> None:
        """Bills what every open request has used so far, and releases the rest. For a process that has to end."""
        ends = [hold.settle_noted() for hold in self._open.values() if not hold.has_ended]
        await asyncio.gather(*ends, return_exceptions=True)

    async def close(self) -> None:
        """Settles what is open, and waits up to 5 s for pending writes."""
        settling = asyncio.create_task(self.settle_open())
        await asyncio.wait([settling], timeout=CLOSE_S)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_S)
        for bill in self._unposted.values():
            log.critical("not recorded, and lost with this process: %s", bill)
        for task in (settling, *self._tasks):
            task.cancel()

    async def _reserve(self, hold: Reservation) -> None:
        transaction = partial(postings.reserve, entry=hold.entry, amount=hold.held_micro_eur)
        hold.is_stored = True
        # Not durable: a crash that loses the row also ends this process and its request.
        posting = self.spawn(self._database.run(transaction, durable=False, row=hold.entry.org_id))
        try:
            await asyncio.shield(posting)
        except OverLimit as refused:
            raise hold.over_limit(refused) from None
        except asyncio.CancelledError:
            # The client disconnected while the money was being held; nobody is left to settle it.
            self.spawn(self._void_after(posting, hold.entry))
            raise

    async def _void_after(self, posting: asyncio.Task[None], entry: Entry) -> None:
        await asyncio.wait([posting])
        if not posting.cancelled() and posting.exception() is None:
            await self.void(entry)

    async def top_up(self, hold: Reservation, amount: int) -> bool:
        """Holds `amount` micro-EUR more. Returns False if the reservation has ended."""
        await self._marked(hold.entry)
        if not hold.held_micro_eur and hold.marked is None:
            # It was begun without a limit, and has no row yet.
            await self._marked_now([hold])
        used = hold.used
        transaction = partial(postings.top_up, entry=hold.entry, amount=amount, used=used)
        is_held = await self._database.run(transaction, durable=False, row=hold.entry.org_id)
        hold.marked = used
        return is_held

    async def settle(self, bill: Bill) -> int:
        """Posts the usage line. Returns the micro-EUR charged.

        If that fails, whatever the reason, it is retried in the background: as long as the process lives, no line is
        lost and none is doubled.
        """
        entry = bill.entry
        await self._marked(entry)
        try:
            charged = await self._settling.post(bill)
        except Exception as error:
            log.error("usage of request %s could not be recorded yet: %s", entry.request_id, without_text(error))
            self._unposted[entry.id] = bill
            self._owing[entry.org_id] += 1
            self.spawn(self._settle_later(bill))
            return bill.used.cost_micro_eur
        self._settled(bill, charged)
        return charged

    async def _settle_later(self, bill: Bill) -> None:
        entry, wait_s = bill.entry, RETRY_S
        while True:
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, MAX_RETRY_S)
            try:
                charged = await self._settling.post(bill)
            except Exception as error:
                log.error("usage of request %s could not be recorded yet: %s", entry.request_id, without_text(error))
                continue
            del self._unposted[entry.id]
            self._owing[entry.org_id] -= 1
            self._settled(bill, charged)
            return

    def _settled(self, bill: Bill, charged: int) -> None:
        self._open.pop(bill.entry.id, None)
        if charged < bill.used.cost_micro_eur:
            cost = bill.used.cost_micro_eur
            log.warning("request %s cost %d micro-EUR, the limit left %d", bill.entry.request_id, cost, charged)

    async def void(self, entry: Entry) -> None:
        """Releases what is held. If that fails, the lease expires and a reaper does it."""
        await self._marked(entry)
        self._open.pop(entry.id, None)
        try:
            await self._database.run(partial(postings.void, entry=entry), row=entry.org_id)
        except Exception as error:
            log.error("request %s is not released yet: %s", entry.request_id, without_text(error))

    async def _marked(self, entry: Entry) -> None:
        """Waits for a mark on its way: its row must not come after the end of the request."""
        if marking := self._marking.get(entry.id):
            await asyncio.wait([marking])

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Runs `work` to its end even if the request that started it is cancelled."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # Retrieved here, for the waiter may be gone.


def _storable(text: str) -> str:
    """`text` as both databases accept it: clients choose request ids, and a refused line would never be billed."""
    return text[:MAX_TEXT_CHARS].replace("\0", "?").encode("utf-8", "replace").decode()
