"""Spend limits that hold: reserve before an engine is called, settle from what it counted. Spec 5.8, 7 (402) and 8.

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
import time
import uuid
from collections import Counter
from collections.abc import Coroutine
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar
from weakref import WeakValueDictionary

from contract.access import Caller
from contract.errors import ORG_SPEND_LIMIT, QUOTA_EXCEEDED, STATE_UNAVAILABLE, USER_SPEND_LIMIT, ApiError, without_text
from state.billing import postings
from state.billing.postings import NOTHING, Bill, Entry, OverLimit, Used
from state.billing.settling import Settling
from state.database.base import Database

T = TypeVar("T")
log = logging.getLogger(f"parlance.{__name__}")

MARK_S = 1.0
"""Time between marks, and the age from which a request gets any."""

MARKS_AT_ONCE = 200
KEEP_S = 86_400
ROUNDS = 20
"""Transactions of one clean-up: what is left then waits for the next one."""

RETRY_S = 0.5
MAX_RETRY_S = 5.0
CLOSE_S = 5.0
MAX_TEXT_CHARS = 255

SPEND_LIMITS = {"organisation": ORG_SPEND_LIMIT, "user": USER_SPEND_LIMIT}


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
        self,
        caller: Caller,
        *,
        line: str,
        model: str,
        estimate_micro_eur: int,
        request_id: str,
        design: bool = False,
    ) -> Reservation:
        """Holds the estimate, at least 1 micro-EUR, against the limits of the caller's organisation and user.

        Raises ORG_SPEND_LIMIT or USER_SPEND_LIMIT (QUOTA_EXCEEDED for voice designs), STATE_UNAVAILABLE if the
        database cannot record it.
        """
        texts = (_storable(text) for text in (request_id, line, model))
        entry = Entry(uuid.uuid4().hex, caller.org_id, caller.user_id, caller.key_id, *texts)
        hold = Reservation(self, entry, caller, design)
        if caller.org_limited or caller.user_limited:
            hold.held_micro_eur = max(1, estimate_micro_eur)
            await self._reserve(hold)
        elif self._owing[caller.org_id]:
            # Nothing else here would query the database, and what is used now might never be billed.
            raise STATE_UNAVAILABLE()
        self._open[entry.id] = hold
        return hold

    async def mark(self) -> None:
        """Records what the streams of this process have used since the last time.

        Callers without a limit get their row here, so that whoever is done within MARK_S costs none.
        """
        due = [hold for hold in self._open.values() if hold.is_due()]
        for start in range(0, len(due), MARKS_AT_ONCE):
            holds = [hold for hold in due[start : start + MARKS_AT_ONCE] if not hold.has_ended]
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
        ended, after = 0, (0, "")
        for _ in range(ROUNDS):
            rows = await self._database.run(partial(postings.orphans, after=after), patient=True)
            for row in rows:
                if row.id not in self._open and row.id not in self._unposted:
                    ended += await self._recover(row.id, row.request_id)
            if len(rows) < postings.AT_ONCE:
                break
            after = (rows[-1].lease_until, rows[-1].id)
        return ended

    async def _recover(self, reservation_id: str, request_id: str) -> bool:
        try:
            recover = partial(postings.recover, reservation_id=reservation_id)
            used = await self._database.run(recover, patient=True)
        except Exception as error:
            # One row must not keep the others from being ended.
            log.error("the orphaned reservation of request %s could not be ended: %s", request_id, without_text(error))
            return False
        if used is not None and used.quantity:
            log.warning("billed request %s of a dead process: %d %s", request_id, used.quantity, used.unit)
        elif used is not None:
            log.warning("released the reservation of request %s of a dead process", request_id)
        return used is not None

    async def renew(self) -> None:
        """Extends the leases of this process's reservations."""
        ids = [id for id, hold in self._open.items() if hold.is_stored] + [*self._unposted]
        for start in range(0, len(ids), MARKS_AT_ONCE):
            batch = ids[start : start + MARKS_AT_ONCE]
            await self._database.run(partial(postings.renew, ids=batch), patient=True)

    async def forget_old(self) -> None:
        """Deletes reservations that ended a day ago; their usage lines stay."""
        for _ in range(ROUNDS):
            if await self._database.run(partial(postings.forget, kept_s=KEEP_S), patient=True) < postings.AT_ONCE:
                break

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
        used = hold.used
        transaction = partial(postings.top_up, entry=hold.entry, amount=amount, used=used)
        held = await self._database.run(transaction, durable=False, row=hold.entry.org_id)
        hold.marked = used
        return held

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
            log.warning(
                "request %s cost %d micro-EUR, the limit left %d",
                bill.entry.request_id,
                bill.used.cost_micro_eur,
                charged,
            )

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


class Reservation:
    """Money held for one billed request. The first of `settle` and `void` wins; later calls change nothing.

    Attributes:
        held_micro_eur: what is held; 0 for callers without a limit.
        used: what `note` last said.
        marked: what of that the database has; None before the first time.
        is_stored: whether the database may have a row of it.
    """

    def __init__(self, ledger: Ledger, entry: Entry, caller: Caller, design: bool) -> None:
        self.entry = entry
        self.held_micro_eur = 0
        self.used = NOTHING
        self.marked: Used | None = None
        self.is_stored = False
        self._ledger = ledger
        self._caller = caller
        self._design = design
        self._opened_s = time.monotonic()
        self._end: asyncio.Task[int] | None = None

    @property
    def has_ended(self) -> bool:
        """Whether it is settled or void, or on the way there."""
        return self._end is not None

    def note(self, cost_micro_eur: int, quantity: int, unit: str) -> None:
        """What the request has used so far: what is billed if the process ends before the request does."""
        self.used = Used(cost_micro_eur, quantity, unit)

    def is_due(self) -> bool:
        """Whether it has used more than is recorded, and is old enough to be worth it."""
        is_old = time.monotonic() - self._opened_s >= MARK_S
        return is_old and not self.has_ended and self.used not in (NOTHING, self.marked)

    async def top_up(self, micro_eur: int) -> None:
        """Holds more before a stream goes on.

        Raises what `reserve` raises; settle what was produced so far.
        """
        if not self.held_micro_eur or micro_eur <= 0:
            return
        try:
            held = await self._ledger.top_up(self, micro_eur)
        except OverLimit as refused:
            raise self.over_limit(refused) from None
        if not held:
            raise STATE_UNAVAILABLE()
        self.held_micro_eur += micro_eur

    async def settle(self, cost_micro_eur: int, quantity: int, unit: str) -> int:
        """Bills the request once, even if the caller is cancelled. Returns the micro-EUR charged.

        That is less than the cost only if the cost exceeds what was held and the limits have no room for the rest.
        """
        if self._end is None:
            bill = Bill(self.entry, Used(cost_micro_eur, quantity, unit))
            self._end = self._ledger.spawn(self._ledger.settle(bill))
        return await asyncio.shield(self._end)

    async def settle_noted(self) -> None:
        """Bills what was noted; voids where that is nothing."""
        if self.used.quantity:
            await self.settle(self.used.cost_micro_eur, self.used.quantity, self.used.unit)
        else:
            await self.void()

    async def void(self) -> None:
        """Releases what is held without billing, unless the request was settled."""
        if self._end is None:
            self._end = self._ledger.spawn(self._void())
        await asyncio.shield(self._end)

    async def _void(self) -> int:
        if self.is_stored:
            await self._ledger.void(self.entry)
        return 0

    def over_limit(self, refused: OverLimit) -> ApiError:
        """The 402 for this refusal."""
        name = self._caller.org if refused.whose == "organisation" else self._caller.user
        fault = QUOTA_EXCEEDED if self._design else SPEND_LIMITS[refused.whose]
        return fault(f"the spend limit of {refused.whose} `{name}` has no room for this request")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.void()
