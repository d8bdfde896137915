"""A semaphore for owners in turn: one who asks for many slots does not hold up the others.

    slots = FairSemaphore(2, owner_waiting=8, all_waiting=64)
    async with slots.of("org-1"): ...       one slot; QueueFull where too many wait
    with slots.blocking("org-1"): ...       the same in a thread

An owner holds one slot at a time, unless `each` says more. Where all wait that may, the last of the longest line makes
room for an owner that has fewer waiting.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Hashable, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from threading import Lock

from concurrency.fairness import FairQueue, OwnerCounter, QueueFull


class FairSemaphore:
    """Slots that callers of several event loops and threads share.

    Args:
        slots: number of callers that may hold one at a time.
        owner_waiting: most callers of one owner that wait.
        all_waiting: most callers of all owners that wait.
        each: most slots that one owner holds at a time.
    """

    def __init__(
        self, slots: int, owner_waiting: float = math.inf, all_waiting: float = math.inf, each: int = 1
    ) -> None:
        self._slots, self._each = slots, each
        self._owner_waiting, self._all_waiting = owner_waiting, all_waiting
        self._lock = Lock()
        self._holders = OwnerCounter()
        self._queue: FairQueue[Future[None]] = FairQueue()

    @asynccontextmanager
    async def of(self, owner: str) -> AsyncIterator[None]:
        """A slot, for which it waits. A caller without an owner is one of its own. Raises QueueFull, mostly at once."""
        key: Hashable = owner or object()
        await self._acquire(key)
        try:
            yield
        finally:
            self._release(key)

    @contextmanager
    def blocking(self, owner: str) -> Iterator[None]:
        """The same for a thread, which waits here."""
        key: Hashable = owner or object()
        self._request(key).result()
        try:
            yield
        finally:
            self._release(key)

    @property
    def free(self) -> int:
        """Slots that are free."""
        return self._slots - self._holders.total

    @property
    def waiting(self) -> int:
        """Callers that wait."""
        return len(self._queue)

    async def _acquire(self, key: Hashable) -> None:
        ticket = self._request(key)
        if ticket.done():
            return
        try:
            await asyncio.wrap_future(ticket)
        except BaseException:
            if ticket.cancelled() or ticket.cancel():
                with self._lock:
                    self._queue.remove(key, ticket)
            elif ticket.exception() is None:  # it got a slot, and its caller has gone meanwhile
                self._release(key)
            raise

    def _request(self, key: Hashable) -> Future[None]:
        """A ticket that is done when it has a slot, perhaps now."""
        ticket: Future[None] = Future()
        with self._lock:
            if isinstance(key, str):
                self._queue.note(key)
            waiting = self._queue.waiting(key)
            if not waiting and self._may_begin(key):
                self._grant(key, ticket)
                return ticket
            if waiting >= self._owner_waiting:
                raise QueueFull("requests of your organisation wait")
            evicted = self._queue.add(key, ticket, self._all_waiting)
            if not isinstance(key, str):
                self._queue.end_turn(key)  # callers without an owner never pass those that wait
        if evicted and evicted.set_running_or_notify_cancel():
            evicted.set_exception(QueueFull("requests wait"))
        return ticket

    def _may_begin(self, key: Hashable) -> bool:
        return self.free > 0 and self._holders[key] < self._each

    def _grant(self, key: Hashable, ticket: Future[None]) -> None:
        """Gives a slot to `ticket`, unless its caller has gone."""
        if ticket.set_running_or_notify_cancel():
            self._holders.take(key)
            ticket.set_result(None)

    def _release(self, key: Hashable) -> None:
        with self._lock:
            self._holders.give_back(key)
            self._queue.end_turn(key)
            while (owner := self._queue.next(self._holders, self._may_begin)) is not None:
                self._grant(owner, self._queue.pop(owner))
