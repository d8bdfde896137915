"""Spend limits that hold: reserve before an engine is called, settle from what it counted.

    async with await ledger.reserve(caller, line="chat:x", model="x", estimate_micro_eur=40, request_id=...) as hold:
        hold.note(31, quantity=190, unit="tokens")          a stream, as it goes
        await hold.top_up(25)                               and before each further slice
        await hold.settle(52, quantity=310, unit="tokens")  once; a block left without it voids

Callers without a limit hold nothing; their usage line is written all the same. What a stream has noted is recorded
every second (`mark`). If its process dies, another one bills that (`reap`); if it must end, it does (`settle_open`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from contract.access import Caller
from contract.errors import STATE_UNAVAILABLE, Fault, without_text
from state.billing import postings, upkeep
from state.billing.holds import Holds
from state.billing.purse import Purse, Purses
from state.billing.reservation import Reservation
from state.billing.upkeep import Marks
from state.billing.usage import COST, Bill, Entry, PurseGone
from state.database.base import Database

T = TypeVar("T")
Posting = tuple[Bill, asyncio.Future[int]]
log = logging.getLogger(f"parlance.{__name__}")

BILLS_AT_ONCE = 100
"""In one transaction."""
RETRY_S = 0.5
MAX_RETRY_S = 5.0
CLOSE_S = 5.0


class Ledger:
    """The money of one process. Budgets live in `database`; leases are by its clock."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._marks = Marks(database, self.spawn)
        self._purses = Purses(database, self.spawn, self._leave)
        self._holds = Holds(database, self._purses, self._marks, self.spawn)
        # Weak: a reservation that a bug leaked must not be renewed for ever, its lease has to expire.
        self._open: WeakValueDictionary[str, Reservation] = WeakValueDictionary()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._unposted: dict[str, Bill] = {}
        self._owing: Counter[int] = Counter()
        self._waiting: dict[int, list[Posting]] = {}
        self.billed: Counter[tuple[str, str]] = Counter()  # recorded since the process began, by model and unit

    async def reserve(
        self, caller: Caller, *, line: str, model: str, estimate_micro_eur: int, request_id: str
    ) -> Reservation:
        """Holds the estimate, at least 1 micro-EUR, against the limits of the caller's organisation and user.

        Raises ORG_SPEND_LIMIT or USER_SPEND_LIMIT, STATE_UNAVAILABLE if the database cannot record it.
        """
        hold = Reservation(self, caller, request_id=request_id, line=line, model=model)
        if caller.org_limited or caller.user_limited:
            hold.held_micro_eur = max(1, estimate_micro_eur)
            # Nothing is taken in advance while bills wait: what is used now might never be billed.
            await self._holds.hold(hold, may_take=not self._owing[caller.org_id])
        elif self._owing[caller.org_id]:
            # Nothing else here would query the database.
            raise STATE_UNAVAILABLE()
        self._open[hold.entry.id] = hold
        return hold

    async def mark(self) -> None:
        """Records what the streams of this process have used since the last time.

        Callers without a limit get their row here, so that whoever is done within MARK_S costs none.
        """
        await self._marks.record([hold for hold in self._open.values() if hold.is_due()])

    async def tend(self) -> None:
        """Closes purses that are not used, or hold too much by now."""
        await self._purses.tend()

    @property
    def backlog(self) -> int:
        """Bills that are not recorded yet."""
        return len(self._unposted)

    async def reap(self) -> int:
        """Ends reservations whose lease has expired: bills what was marked. Returns how many."""
        return await upkeep.reap(self._database, lambda id: id in self._rows())

    async def renew(self) -> None:
        """Extends the leases of this process's reservations."""
        await upkeep.renew(self._database, [*self._rows()])

    def _rows(self) -> set[str]:
        """Ids of the reservations that this process needs: of open requests, bills to be recorded, and purses."""
        bills, holds = self._unposted.values(), list(self._open.values())
        purses = [bill.purse_id for bill in bills] + [hold.purse.entry.id for hold in holds if hold.purse]
        own = [hold.entry.id for hold in holds if hold.is_stored]
        return {*own, *self._unposted, *filter(None, purses), *self._purses.ids}

    async def forget_old(self) -> None:
        """Deletes reservations that ended a day ago; their usage lines stay."""
        await upkeep.forget_old(self._database)

    async def settle_open(self) -> None:
        """Bills what every open request has used so far, and releases the rest. For a process that has to end."""
        ends = [hold.settle_noted() for hold in self._open.values() if not hold.has_ended]
        await asyncio.gather(*ends, return_exceptions=True)
        await self._purses.close()

    async def close(self) -> None:
        """Settles what is open, and waits up to 5 s for pending writes."""
        settling = asyncio.create_task(self.settle_open())
        await asyncio.wait([settling], timeout=CLOSE_S)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_S)
        for bill in self._unposted.values():
            log.critical("a bill was not recorded and is lost with this process: %s", bill)
        for task in (settling, *self._tasks):
            task.cancel()

    async def _leave(self, purse: Purse) -> bool:
        """Moves what requests took from a purse into rows of their own, and waits for the bills that it pays."""
        await self._marks.record([hold for hold in self._open.values() if hold.purse is purse])
        marks = set(self._marks.under_way.values())
        bills = {
            outcome for bill, outcome in self._waiting.get(purse.entry.org_id, ()) if bill.purse_id == purse.entry.id
        }
        if marks | bills:
            await asyncio.wait(marks | bills)
        return purse.entry.id not in self._rows()

    def settle(self, bill: Bill) -> asyncio.Future[int]:
        """Posts the usage line with others of its organisation. The result is the micro-EUR charged.

        If that fails, whatever the reason, it is retried in the background: as long as the process lives, no line is
        lost and none is doubled.
        """
        outcome: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if mark := self._marks.under_way.get(bill.entry.id):
            # Its row must not come after the end of the request.
            mark.add_done_callback(lambda _: self._queue(bill, outcome))
        else:
            self._queue(bill, outcome)
        return outcome

    def _queue(self, bill: Bill, outcome: asyncio.Future[int]) -> None:
        org_id = bill.entry.org_id
        waiting = self._waiting.setdefault(org_id, [])
        waiting.append((bill, outcome))
        if len(waiting) == 1:
            self.spawn(self._work_off(org_id))

    def _end(self, posting: Posting, charged: int | Exception) -> None:
        """Tells what was charged. What was not recorded is posted again later, and counts as charged."""
        (bill, outcome), cost, request_id = posting, posting[0].used.cost_micro_eur, posting[0].entry.request_id
        if isinstance(charged, Exception):
            log.error("could not record the usage of request %s yet: %s", request_id, without_text(charged))
            if bill.entry.id not in self._unposted:
                self._unposted[bill.entry.id] = bill
                self._owing[bill.entry.org_id] += 1
                self.spawn(self._settle_later(bill))
            charged = cost
        else:
            self._open.pop(bill.entry.id, None)
            self._owing[bill.entry.org_id] -= self._unposted.pop(bill.entry.id, None) is not None
            amounts = {**(bill.used.quantities or {}), COST: charged}
            self.billed.update({(bill.entry.model, unit): amount for unit, amount in amounts.items()})
            if charged < cost:
                log.warning("request %s cost %d micro-EUR, but the spend limit allowed %d", request_id, cost, charged)
        if not outcome.done():
            outcome.set_result(charged)

    async def _settle_later(self, bill: Bill) -> None:
        wait_s = RETRY_S
        while bill.entry.id in self._unposted:
            await asyncio.sleep(wait_s)
            await self.settle(bill)
            wait_s = min(2 * wait_s, MAX_RETRY_S)

    async def _work_off(self, org_id: int) -> None:
        """Whoever is first starts it; who comes while a transaction runs shares the next one."""
        waiting = self._waiting[org_id]
        try:
            while waiting:
                # The first stays in the list meanwhile: it shows that somebody works.
                batch = waiting[:BILLS_AT_ONCE]
                await self._post(org_id, batch)
                del waiting[: len(batch)]
        finally:
            del self._waiting[org_id]
            for _, outcome in waiting:
                outcome.cancel()

    async def _post(self, org_id: int, batch: list[Posting]) -> Exception | None:
        """Tells each of `batch` what was charged, or why it was not recorded. Returns why nothing was."""
        charges: Sequence[int | Exception]
        try:
            charges = await self._database.run(partial(postings.settle, bills=[bill for bill, _ in batch]), row=org_id)
        except Exception as error:
            if isinstance(error, PurseGone):
                self._purses.lose(error.purse_id)
            if len(batch) == 1 and isinstance(error, PurseGone):
                # What the limits leave pays.
                ((bill, outcome),) = batch
                return await self._post(org_id, [(replace(bill, purse_id=None, covered_micro_eur=0), outcome)])
            # One bill may be at fault, and the others must not suffer for it; or nothing can be written at all.
            failure = error if len(batch) == 1 else await self._post(org_id, batch[:1])
            if not failure:
                for posting in batch[1:]:
                    await self._post(org_id, [posting])
                return None
            charges = [failure] * len(batch)
        for posting, charged in zip(batch, charges, strict=True):
            self._end(posting, charged)
        return charges[0] if isinstance(charges[0], Exception) else None

    async def require_room(self, caller: Caller, fault: Fault | None = None) -> None:
        """For what is free, but keeps an engine awake: raises what `reserve` would raise of 1 micro-EUR, or `fault`."""
        if caller.org_limited or caller.user_limited:
            await self._holds.require_room(caller, fault)

    async def top_up(self, hold: Reservation, amount: int) -> bool:
        """Holds `amount` micro-EUR more. Returns False if the reservation has ended. Raises OverLimit."""
        return await self._holds.top_up(hold, amount)

    async def void(self, entry: Entry) -> None:
        """Releases what is held in a row. If that fails, the lease expires and a reaper does it."""
        await self._holds.void(entry)
        self._open.pop(entry.id, None)

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
