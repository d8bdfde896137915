"""Many owners share few things, and one that asks for much does not hold up the others. Most owners are organisations.

    OwnerCounter     how much of one thing each owner has
    FairQueue        entries that wait: owners take turns, and a full queue evicts from the longest line

Both belong to one thread, or stand behind a lock of their user.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from itertools import chain, count
from typing import Generic, TypeVar

T = TypeVar("T")

MEMORY_S = 60.0
"""Seconds after its last request for which a queue remembers an owner and its last turn."""


class QueueFull(Exception):
    """Too many requests wait already. Its text continues "too many"."""


class OwnerCounter(dict[Hashable, int]):
    """Amount of one thing by owner. It forgets owners that have nothing.

    Attributes:
        total: amount of all owners together.
    """

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __missing__(self, owner: Hashable) -> int:
        return 0

    def take(self, owner: Hashable, amount: int = 1, limit: float = math.inf) -> bool:
        """Counts `amount` more for `owner`, unless it would have more than `limit` then. Returns whether it did."""
        rest = self.get(owner, 0) + amount
        if rest > limit:
            return False
        self.total += amount
        if rest:
            self[owner] = rest
        else:
            self.pop(owner, None)
        return True

    def give_back(self, owner: Hashable, amount: int = 1) -> None:
        """Counts `amount` less for `owner`."""
        self.take(owner, -amount)


class FairQueue(Generic[T]):
    """Entries that wait, by owner: within an owner first come, first served; owners take turns.

    The owner that had its last turn longest ago is next. An owner that has not been here for MEMORY_S by `clock`, in
    seconds, has had no turn.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lines: dict[Hashable, deque[T]] = {}
        self._length = 0
        self._seen_s: dict[Hashable, float] = {}
        """Last visits of owners; the latest is last."""
        self._turns: dict[Hashable, int] = {}
        """The number of each owner's last turn."""
        self._numbers = count(1)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(self._lines.values())

    def waiting(self, owner: Hashable) -> int:
        """Returns how many entries of `owner` wait."""
        return len(self._lines.get(owner, ()))

    def lengths(self) -> dict[Hashable, int]:
        """The same of each owner that has entries."""
        return {owner: len(line) for owner, line in self._lines.items()}

    def first(self, owner: Hashable) -> T | None:
        """The entry of `owner` that is served next."""
        return next(iter(self._lines.get(owner, ())), None)

    def owners(self) -> list[Hashable]:
        """Owners that have entries, the next one first."""
        return sorted(self._lines, key=lambda owner: self._turns.get(owner, 0))

    def next(self, served: OwnerCounter, may_begin: Callable[[Hashable], bool]) -> Hashable | None:
        """The owner that is `served` least of those that `may_begin`; among equals, the next one."""
        owners = filter(may_begin, self._lines)
        return min(owners, key=lambda owner: (served.get(owner, 0), self._turns.get(owner, 0)), default=None)

    def add(self, owner: Hashable, entry: T, most: float = math.inf, *, first: bool = False) -> T | None:
        """Adds `entry` as the last of its owner, or as the `first`.

        Where `most` wait already, it removes and returns the last entry of the longest line.

        Raises QueueFull where that line would be no longer than the one of `owner`.
        """
        evicted = self._evict(owner) if self._length >= most else None
        self._lines.setdefault(owner, deque()).insert(0 if first else self.waiting(owner), entry)
        self._length += 1
        return evicted

    def pop(self, owner: Hashable) -> T:
        """Removes and returns the first entry of `owner`, which is next."""
        entry = self._lines[owner].popleft()
        self._shorten(owner)
        self.end_turn(owner)
        return entry

    def remove(self, owner: Hashable, entry: T) -> None:
        """Removes `entry` if it still waits."""
        try:
            self._lines[owner].remove(entry)
        except (KeyError, ValueError):
            return
        self._shorten(owner)

    def end_turn(self, owner: Hashable) -> None:
        """Places `owner` behind all that wait now."""
        if owner in self._seen_s or owner in self._lines:
            self._turns[owner] = next(self._numbers)

    def note(self, owner: Hashable) -> None:
        """Remembers that `owner` is here now, and forgets those that were here longer ago than MEMORY_S."""
        now_s = self._clock()
        self._seen_s.pop(owner, None)
        self._seen_s[owner] = now_s
        while self._seen_s[oldest := next(iter(self._seen_s))] < now_s - MEMORY_S:
            del self._seen_s[oldest]
            if oldest not in self._lines:
                self._turns.pop(oldest, None)

    def rehearsal(self, lines: FairQueue[T]) -> FairQueue[T]:
        """A copy of `lines` with the turns of this queue: to see when each owner would be served."""
        copy: FairQueue[T] = FairQueue(self._clock)
        copy._lines = {owner: deque(line) for owner, line in lines._lines.items()}
        copy._length = lines._length
        copy._turns = dict(self._turns)
        copy._numbers = count(1 + max(self._turns.values(), default=0))
        return copy

    def others(self, owner: Hashable, within_s: float) -> Iterator[Hashable]:
        """Owners beside `owner` that were here in the last `within_s` seconds, at most MEMORY_S; the latest first."""
        since_s = self._clock() - within_s
        for other, seen_s in reversed(self._seen_s.items()):
            if seen_s < since_s:
                return
            if other != owner:
                yield other

    def _evict(self, owner: Hashable) -> T:
        longest = max(self._lines, key=lambda line: len(self._lines[line]), default=owner)
        if self.waiting(longest) <= self.waiting(owner) + 1:
            raise QueueFull("requests wait")
        entry = self._lines[longest].pop()
        self._shorten(longest)
        return entry

    def _shorten(self, owner: Hashable) -> None:
        self._length -= 1
        if not self._lines[owner]:
            del self._lines[owner]
            if owner not in self._seen_s:
                self._turns.pop(owner, None)
