"""Who comes next where places are few: owners in rotation, so that nobody who sends much holds up the others.

    turns = Turns(places=2, owner_waiting=8, all_waiting=64)
    async with turns.of("org-1"): ...       one place; Crowded where too many wait
    with turns.blocking("org-1"): ...       the same in a thread

An owner has one place at a time, unless `each` says more. Where all wait that may, the last of the longest line makes
room for an owner who has fewer waiting. Callers of several event loops and threads may share the places.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter, deque
from collections.abc import AsyncIterator, Hashable, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from threading import Lock


class Crowded(Exception):
    """So many wait already that nobody more is let in. Its text says of whom, after "too many"."""


class Turns:
    """Places, and who waits for one.

    Args:
        places: how many may be inside at a time.
        owner_waiting: most callers of one owner that wait.
        all_waiting: most callers of all owners that wait.
        each: most places that one owner has.
    """

    def __init__(
        self, places: int, owner_waiting: float = math.inf, all_waiting: float = math.inf, *, each: int = 1
    ) -> None:
        self._free = places
        self._each = each
        self._owner_waiting, self._all_waiting = owner_waiting, all_waiting
        self._lock = Lock()
        self._inside: Counter[Hashable] = Counter()
        self._lines: dict[Hashable, deque[Future[None]]] = {}
        """Who waits, by owner; an owner whose turn was last stands last."""

    @asynccontextmanager
    async def of(self, owner: str) -> AsyncIterator[None]:
        """A place, for which it waits. Without an owner a caller is one of its own. Raises Crowded, mostly at once."""
        key: Hashable = owner or object()
        await self._enter(key)
        try:
            yield
        finally:
            self._leave(key)

    @contextmanager
    def blocking(self, owner: str) -> Iterator[None]:
        """The same for a thread, which waits here."""
        key: Hashable = owner or object()
        with self._lock:
            ticket = self._take(key)
        ticket.result()
        try:
            yield
        finally:
            self._leave(key)

    @property
    def waiting(self) -> int:
        """Callers that wait."""
        with self._lock:
            return sum(map(len, self._lines.values()))

    async def _enter(self, key: Hashable) -> None:
        with self._lock:
            ticket = self._take(key)
        try:
            await asyncio.wrap_future(ticket)
        except BaseException:
            if ticket.cancelled() or ticket.cancel():
                self._forget(key, ticket)
            elif ticket.exception() is None:  # it was let in and is not there any more
                self._leave(key)
            raise

    def _take(self, key: Hashable) -> Future[None]:
        """A ticket that is called when it has a place, perhaps now."""
        ticket: Future[None] = Future()
        line = self._lines.get(key, deque())
        if self._free and self._inside[key] < self._each and not line:
            self._admit(key, ticket)
            return ticket
        if len(line) >= self._owner_waiting:
            raise Crowded("files of your organisation wait to be decoded")
        self._make_room(line)
        line.append(ticket)
        self._lines[key] = line
        return ticket

    def _make_room(self, line: deque[Future[None]]) -> None:
        """Sends the last of the longest line away if too many wait. Raises Crowded where that is the one to come."""
        if sum(map(len, self._lines.values())) < self._all_waiting:
            return
        longest = max(self._lines.values(), key=len)
        if len(longest) <= len(line) + 1:
            raise Crowded("files wait to be decoded")
        last = longest.pop()
        if last.set_running_or_notify_cancel():
            last.set_exception(Crowded("files wait to be decoded"))

    def _admit(self, key: Hashable, ticket: Future[None]) -> None:
        """Gives a place to `ticket`, unless its caller has gone."""
        if not ticket.set_running_or_notify_cancel():
            return
        self._free -= 1
        self._inside[key] += 1
        ticket.set_result(None)

    def _leave(self, key: Hashable) -> None:
        with self._lock:
            self._free += 1
            self._inside[key] -= 1
            self._inside += Counter()  # forgets who has none
            if key in self._lines:
                self._lines[key] = self._lines.pop(key)
            self._call_next()

    def _call_next(self) -> None:
        """Fills the free places."""
        while self._free and (key := self._next()) is not None:
            line = self._lines.pop(key)
            self._admit(key, line.popleft())
            if line:
                self._lines[key] = line

    def _next(self) -> Hashable | None:
        """The owner whose turn it is."""
        return next((key for key in self._lines if self._inside[key] < self._each), None)

    def _forget(self, key: Hashable, ticket: Future[None]) -> None:
        with self._lock:
            line = self._lines.get(key, deque())
            if ticket in line:
                line.remove(ticket)
            if not line:
                self._lines.pop(key, None)
