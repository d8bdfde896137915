"""Spend limits that hold: reserve before an engine is called, settle from what it counted. Spec 5.8, 7 (402) and 8.

    async with await ledger.reserve(caller, line="chat:x", model="x", estimate_micro_eur=40, request_id=...) as hold:
        await hold.top_up(25)                               a stream, before each further slice
        await hold.settle(52, quantity=310, unit="tokens")  once; a block left without it voids

Callers without a limit hold nothing; their usage line is written all the same.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Coroutine
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar
from weakref import WeakValueDictionary

from contract.access import Caller
from contract.errors import ORG_SPEND_LIMIT, STATE_UNAVAILABLE, USER_SPEND_LIMIT, ApiError, Fault
from state.billing import postings
from state.billing.postings import Entry, OverLimit
from state.database.base import Database

T = TypeVar("T")
log = logging.getLogger(f"parlance.{__name__}")

LEASE_S = 120
"""A reservation that is not renewed for this long is taken for orphaned, and released."""

KEEP_S = 86_400
RETRY_S = 0.5
MAX_RETRY_S = 5.0
CLOSE_S = 5.0
MAX_TEXT_CHARS = 255

SPEND_LIMITS = {"organisation": ORG_SPEND_LIMIT, "user": USER_SPEND_LIMIT}


class Ledger:
    """The money of one process.

    Args:
        database: where budgets live.
        wall: clock in seconds since 1970.
    """

    def __init__(self, database: Database, wall: Callable[[], float] = time.time) -> None:
        self._database = database
        self._wall = wall
        # Weak: a reservation that a bug leaked must not be renewed for ever, its lease has to expire.
        self._open: WeakValueDictionary[str, Reservation] = WeakValueDictionary()
        self._tasks: set[asyncio.Task[object]] = set()
        self._unposted: set[str] = set()

    async def reserve(
        self,
        caller: Caller,
        *,
        line: str,
        model: str,
        estimate_micro_eur: int,
        request_id: str,
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
            self._open[entry.id] = hold
        elif self._unposted:
            # Nothing else here would query the database, and what is used now might never be billed.
            raise STATE_UNAVAILABLE()
        return hold

    async def reap(self) -> int:
        """Voids reservations whose lease has expired. Returns how many."""
        orphans = await self._database.run(lambda connection: postings.orphans(connection, self._now_s()))
        voided = 0
        for entry in orphans:
            if entry.id not in self._open and entry.id not in self._unposted:
                voided += await self._database.run(partial(postings.void, entry=entry))
        if voided:
            log.warning("released %d orphaned reservations", voided)
        return voided

    async def renew(self) -> None:
        """Extends the leases of this process's reservations, and deletes those that ended a day ago."""
        ids, now_s = [*self._open, *self._unposted], self._now_s()
        if ids:
            await self._database.run(lambda connection: postings.renew(connection, ids, now_s + LEASE_S))
        await self._database.run(lambda connection: postings.forget(connection, now_s - KEEP_S))

    async def close(self) -> None:
        """Waits up to 5 s for pending writes."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_S)
        if self._unposted:
            log.critical("%d usage lines could not be recorded and are lost", len(self._unposted))
        for task in self._tasks:
            task.cancel()

    async def _reserve(self, hold: Reservation) -> None:
        now_s = self._now_s()
        transaction = partial(
            postings.reserve, entry=hold.entry, amount=hold.held_micro_eur, now_s=now_s, lease_until=now_s + LEASE_S
        )
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

    async def top_up(self, entry: Entry, amount: int) -> bool:
        """Holds `amount` micro-EUR more. Returns False if the reservation has ended."""
        until = self._now_s() + LEASE_S
        transaction = partial(postings.top_up, entry=entry, amount=amount, lease_until=until)
        return await self._database.run(transaction, durable=False, row=entry.org_id)

    async def settle(self, entry: Entry, cost: int, quantity: int, unit: str) -> int:
        """Posts the usage line. Returns the micro-EUR charged.

        If the database refuses, it is retried in the background: as long as the process lives, no line is lost and
        none is doubled.
        """
        at_ms = int(self._wall() * 1000)
        transaction = partial(postings.settle, entry=entry, cost=cost, quantity=quantity, unit=unit, at_ms=at_ms)
        try:
            charged = await self._database.run(transaction, row=entry.org_id)
        except ApiError:
            log.error("usage of request %s could not be recorded yet", entry.request_id)
            self._unposted.add(entry.id)
            self.spawn(self._settle_later(entry, transaction))
            return cost
        self._settled(entry, cost, charged)
        return charged

    async def _settle_later(self, entry: Entry, transaction: Callable[..., int]) -> None:
        wait_s = RETRY_S
        while True:
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, MAX_RETRY_S)
            try:
                charged = await self._database.run(transaction, row=entry.org_id)
            except ApiError:
                continue
            self._unposted.discard(entry.id)
            self._settled(entry, charged, charged)
            return

    def _settled(self, entry: Entry, cost: int, charged: int) -> None:
        self._open.pop(entry.id, None)
        if charged < cost:
            log.warning("request %s cost %d micro-EUR, the limit left %d", entry.request_id, cost, charged)

    async def void(self, entry: Entry) -> None:
        """Releases what is held. If the database refuses, the lease expires and a reaper does it."""
        if self._open.pop(entry.id, None) is None and entry.id in self._unposted:
            return
        try:
            await self._database.run(partial(postings.void, entry=entry), row=entry.org_id)
        except ApiError:
            log.error("the reservation of request %s could not be released yet", entry.request_id)

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

    def _now_s(self) -> int:
        return int(self._wall())


def over_limit(refused: OverLimit, caller: Caller, fault: Fault) -> ApiError:
    """The 402 for a refusal."""
    name = caller.org if refused.whose == "organisation" else caller.user
    return fault(f"the spend limit of {refused.whose} `{name}` has no room for this request")


def _storable(text: str) -> str:
    """`text` as both databases accept it: clients choose request ids, and a refused line would never be billed."""
    return text[:MAX_TEXT_CHARS].replace("\0", "?").encode("utf-8", "replace").decode()


class Reservation:
    """Money held for one billed request. The first of `settle` and `void` wins; later calls change nothing.

    Attributes:
        held_micro_eur: what is held; 0 for callers without a limit.
    """

    def __init__(self, ledger: Ledger, entry: Entry, caller: Caller) -> None:
        self.entry = entry
        self.held_micro_eur = 0
        self._ledger = ledger
        self._caller = caller
        self._end: asyncio.Task[int] | None = None

    async def top_up(self, micro_eur: int) -> None:
        """Holds more before a stream goes on.

        Raises what `reserve` raises; settle what was produced so far.
        """
        if not self.held_micro_eur or micro_eur <= 0:
            return
        try:
            held = await self._ledger.top_up(self.entry, micro_eur)
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
            self._end = self._ledger.spawn(self._ledger.settle(self.entry, cost_micro_eur, quantity, unit))
        return await asyncio.shield(self._end)

    async def void(self) -> None:
        """Releases what is held without billing, unless the request was settled."""
        if self._end is None:
            self._end = self._ledger.spawn(self._void())
        await asyncio.shield(self._end)

    async def _void(self) -> int:
        if self.held_micro_eur:
            await self._ledger.void(self.entry)
        return 0

    def over_limit(self, refused: OverLimit) -> ApiError:
        """The 402 for this refusal."""
        return over_limit(refused, self._caller, SPEND_LIMITS[refused.whose])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.void()
