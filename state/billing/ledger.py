"""Spend limits that hold: reserve before an engine is called, settle from what it counted.

    hold = await ledger.reserve(caller, line="chat:x", model="x", estimate_micro_eur=40, request_id=...)
    hold.note(31, quantity=190, unit="tokens")              a stream, as it goes
    await hold.top_up(25)                                   once that exceeds what is reserved
    await hold.settle(52, quantity=310, unit="tokens")      once, or `void`; `OpenBill` does all of this

Callers without a limit hold nothing; their usage line is written all the same. What a stream has noted is recorded
every second (`mark`). If its process dies, another one bills that (`reap`); if it must end, it does (`settle_open`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from concurrency.background import attempted
from contract.access import Caller
from contract.errors import STATE_UNAVAILABLE, Fault, without_text
from contract.ids import random_id
from state import retries
from state.billing import postings, upkeep
from state.billing.purse import Purse, Purses
from state.billing.reservation import Funds, Reservation, Step
from state.billing.upkeep import Marks
from state.billing.usage import COST, Bill, Entry, OverLimit, PurseGone, over_limit
from state.database.base import Database

T = TypeVar("T")
Posting = tuple[Bill, asyncio.Future[int]]
log = logging.getLogger(f"parlance.{__name__}")

BILLS_AT_ONCE = 100
"""In one transaction."""
CLOSE_S = 5.0
"""For pending bills to be recorded when the process ends."""
LEAVE_S = 5.0
"""For what is pending then to be left to another process."""
MAX_TEXT_CHARS = 255


class Ledger:
    """The money of one process. Budgets live in `database`; leases are by its clock."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._marks = Marks(database, self.spawn)
        self._purses = Purses(database, self.spawn, self._leave)
        # Weak: a reservation that a bug leaked must not be renewed for ever, its lease has to expire.
        self._open: WeakValueDictionary[str, Reservation] = WeakValueDictionary()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._unposted: dict[str, Posting] = {}  # every bill until it is recorded, by reservation
        self._late: set[str] = set()  # those among them that could not be recorded at once
        self._unposted_by_org: Counter[int] = Counter()  # the same by organisation
        self._waiting: dict[int, list[Posting]] = {}
        self.billed: Counter[tuple[str, str]] = Counter()  # recorded since the process began, by model and unit

    async def reserve(
        self, caller: Caller, *, line: str, model: str, estimate_micro_eur: int, request_id: str
    ) -> Reservation:
        """Holds the estimate, at least 1 micro-EUR, against the limits of the caller's organisation and user.

        Raises ORG_SPEND_LIMIT or USER_SPEND_LIMIT, STATE_UNAVAILABLE if the database cannot record it.
        """
        hold = Reservation(caller, _entry(caller, request_id, line, model), self._top_up, self._settle, self.void)
        if caller.org_limited or caller.user_limited:
            hold.held_micro_eur = max(1, estimate_micro_eur)
            await self._hold(hold)
        elif self._unposted_by_org[caller.org_id]:
            # Nothing else here would query the database.
            raise STATE_UNAVAILABLE()
        self._open[hold.entry.id] = hold
        return hold

    async def _hold(self, hold: Reservation) -> None:
        """Holds its money: from a purse where that is possible, else in a row."""
        owner = (hold.caller.org_id, hold.caller.user_id)
        # Nothing is taken in advance while bills wait: what is used now might never be billed.
        has_waiting_bills = self._unposted_by_org[hold.caller.org_id] > 0
        purse = None if has_waiting_bills else await self._purses.take(owner, hold.held_micro_eur)
        if purse:
            hold.move(Step.TAKE, purse)
            return
        try:
            await self.to_the_limit(hold.entry.org_id, partial(self._in_a_row, hold))
        except OverLimit as refused:
            raise over_limit(refused, hold.caller) from None

    async def to_the_limit(self, org_id: int, post: Callable[[], Awaitable[T]]) -> T:
        """Returns what `post` does; near a limit it gets what the purses have free. Raises OverLimit."""
        while True:
            try:
                return await post()
            except OverLimit:
                if not (emptying := self._purses.empty(org_id)):
                    raise
                await asyncio.wait(emptying)

    async def _in_a_row(self, hold: Reservation) -> None:
        transaction = partial(postings.reserve, entry=hold.entry, amount=hold.held_micro_eur)
        hold.move(Step.HOLD)
        # Not durable: a crash that loses the row also ends this process and its request.
        posting = self.spawn(self._database.run(transaction, durable=False, row=hold.entry.org_id))
        try:
            await asyncio.shield(posting)
        except asyncio.CancelledError:
            # The client disconnected while the money was being held; nobody is left to settle it.
            self.spawn(self._void_after(posting, hold))
            raise

    async def _void_after(self, posting: asyncio.Task[None], hold: Reservation) -> None:
        await asyncio.wait([posting])
        if not posting.cancelled() and posting.exception() is None:
            await self.void(hold)

    async def mark(self) -> None:
        """Records what the streams of this process have used since the last time; `State` calls it each MARK_S.

        Callers without a limit get their row here, so that a request that is done within MARK_S costs none.
        """
        await self._marks.record([hold for hold in self._open.values() if hold.is_due()])

    async def tend(self) -> None:
        """Closes purses that are not used, or hold too much."""
        await self._purses.tend()

    @property
    def backlog(self) -> int:
        """Bills that could not be recorded at once, and are not yet."""
        return len(self._late)

    async def reap(self) -> int:
        """Ends reservations with an expired lease: bills what was marked. Returns how many."""
        return await upkeep.reap(self._database, lambda id: id in self._rows())

    async def renew(self) -> None:
        """Extends the leases of this process's reservations."""
        await upkeep.renew(self._database, [*self._rows()])

    def _rows(self) -> set[str]:
        """Ids of the reservations that this process needs: of open requests, bills to be recorded, and purses."""
        holds = list(self._open.values())
        purses = [bill.purse_id for bill, _ in self._unposted.values()]
        purses += [hold.purse.entry.id for hold in holds if hold.purse]
        own = [hold.entry.id for hold in holds if hold.may_have_row]
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
        """Settles what is open, and waits up to CLOSE_S for pending writes.

        Bills that are not recorded then are left to another process as far as the database takes them, and logged.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self.settle_open()
                while self._tasks:
                    await asyncio.wait(self._tasks)
        leaving = {self.spawn(self._owe(bill)): bill for bill, _ in self._unposted.values()}
        for task in self._tasks - leaving.keys():
            task.cancel()
        for bill, outcome in self._unposted.values():
            if not outcome.done():
                outcome.set_result(bill.used.cost_micro_eur)
        self._unposted.clear()
        if leaving:
            await asyncio.wait(leaving, timeout=LEAVE_S)
        for task, bill in leaving.items():
            if task.done() and not task.exception() and task.result():
                log.error("the bill of request %s is left to another process", bill.entry.request_id)
            else:
                task.cancel()
                log.critical("a bill was not recorded and is lost with this process: %s", bill)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=LEAVE_S)

    async def _owe(self, bill: Bill) -> bool:
        try:
            return await self._database.run(partial(upkeep.owe, bill=bill))
        except PurseGone:
            return await self._owe(replace(bill, purse_id=None, covered_micro_eur=0))

    async def _leave(self, purse: Purse) -> bool:
        """Moves what requests took from a purse into rows of their own, and waits for the bills that it pays."""
        await self._marks.record([hold for hold in self._open.values() if hold.purse is purse])
        pending = {outcome for bill, outcome in self._unposted.values() if bill.purse_id == purse.entry.id}
        if pending:
            await asyncio.wait(pending)
        return purse.entry.id not in self._rows()

    def _settle(self, bill: Bill) -> asyncio.Future[int]:
        """Posts the usage line with others of its organisation. The result is the micro-EUR charged.

        If that fails, whatever the reason, it is retried in the background: as long as the process lives, no line is
        lost and none is doubled.
        """
        outcome: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._unposted[bill.entry.id] = (bill, outcome)
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
            self.spawn(self._drain_queue(org_id))

    def _end(self, posting: Posting, charged: int | Exception) -> None:
        """Sets what was charged. What was not recorded is posted again later, and counts as charged."""
        bill, outcome = posting
        entry = bill.entry
        cost = bill.used.cost_micro_eur
        if isinstance(charged, Exception):
            log.error("could not record the usage of request %s yet: %s", entry.request_id, without_text(charged))
            if entry.id not in self._late:
                self._late.add(entry.id)
                self._unposted_by_org[entry.org_id] += 1
                self.spawn(self._settle_later(bill))
            charged = cost
        else:
            self._open.pop(entry.id, None)
            self._unposted.pop(entry.id, None)
            self._unposted_by_org[entry.org_id] -= entry.id in self._late
            self._late.discard(entry.id)
            amounts = {**(bill.used.quantities or {}), COST: charged}
            self.billed.update({(entry.model, unit): amount for unit, amount in amounts.items()})
            if charged < cost:
                log.warning(
                    "request %s cost %d micro-EUR, but the spend limit allowed %d", entry.request_id, cost, charged
                )
        if not outcome.done():
            outcome.set_result(charged)

    async def _settle_later(self, bill: Bill) -> None:
        wait_s = retries.RETRY_S
        while bill.entry.id in self._unposted:
            await asyncio.sleep(wait_s)
            await self._settle(bill)
            wait_s = min(2 * wait_s, retries.MAX_RETRY_S)

    async def _drain_queue(self, org_id: int) -> None:
        """Posts the bills of an organisation; those that come while a transaction runs share the next one."""
        waiting = self._waiting[org_id]
        try:
            while waiting:
                # The first stays in the list meanwhile: it shows that this task runs.
                batch = waiting[:BILLS_AT_ONCE]
                await self._post(org_id, batch)
                del waiting[: len(batch)]
        finally:
            del self._waiting[org_id]

    async def _post(self, org_id: int, batch: list[Posting]) -> Exception | None:
        """Ends each of `batch` with what was charged, or why it was not recorded. Returns why nothing was."""
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

    async def require_funds(self, caller: Caller, fault: Fault | None = None) -> None:
        """For what is free, but keeps an engine awake: raises what `reserve` would raise of 1 micro-EUR, or `fault`."""
        is_limited = caller.org_limited or caller.user_limited
        if not is_limited or self._purses.has_any((caller.org_id, caller.user_id)):
            return
        try:
            await self._database.run(partial(postings.require_funds, org_id=caller.org_id, user_id=caller.user_id))
        except OverLimit as refused:
            raise over_limit(refused, caller, fault) from None

    async def _top_up(self, hold: Reservation, amount: int) -> bool:
        """Holds `amount` micro-EUR more. Returns False if the reservation has ended. Raises OverLimit."""
        await self._marks.written(hold.entry)
        if hold.funds is Funds.PURSE and hold.purse and not hold.has_ended and hold.purse.take(amount):
            return True
        if hold.funds is not Funds.ROW:
            await self._marks.record([hold])
        used = hold.used
        transaction = partial(postings.top_up, entry=hold.entry, amount=amount, used=used)
        run = partial(self._database.run, transaction, durable=False, row=hold.entry.org_id)
        is_held = await self.to_the_limit(hold.entry.org_id, run)
        if is_held:
            hold.recorded(used)
        return is_held

    def void(self, hold: Reservation) -> asyncio.Task[int]:
        """Releases what is held in a row.

        If that fails, it is retried in the background: once the lease expires, a reaper would bill what was marked.
        """
        return self.spawn(self._void(hold))

    async def _void(self, hold: Reservation) -> int:
        if hold.may_have_row:
            await self._marks.written(hold.entry)
            name = f"release the reservation of request {hold.entry.request_id}"
            if not await attempted(name, partial(self._release, hold)):
                self.spawn(retries.retried(name, partial(self._release, hold)))
        return 0

    async def _release(self, hold: Reservation) -> None:
        await self._database.run(partial(postings.void, entry=hold.entry), row=hold.entry.org_id)
        self._open.pop(hold.entry.id, None)

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Runs `work` to its end even if the request that started it is cancelled."""
        # As `start_task` does it, in place: each request comes here, and would enter one file more.
        self._tasks.add(task := asyncio.create_task(work))
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda task: task.cancelled() or task.exception())  # retrieved: the waiter may be gone
        return task


def _entry(caller: Caller, *texts: str) -> Entry:
    """A new entry for a request id, a line and a model, as both databases accept them.

    Clients choose request ids, and a refused line would never be billed.
    """
    stored = (text[:MAX_TEXT_CHARS].replace("\0", "?").encode("utf-8", "replace").decode() for text in texts)
    return Entry(random_id(), caller.org_id, caller.user_id, caller.key_id, *stored)
