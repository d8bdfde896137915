"""Something that several owners take of, each at most as much as stays free: one half of it, the next a quarter.

    disk = Shares(2 * 1024**3)
    disk.take("org-1", 1 << 20)           SharesExhausted where the owner would have more than is left
    disk.give_back("org-1", 1 << 20)

So every owner that comes gets something. Threads may share it.
"""

from __future__ import annotations

from collections import deque
from threading import Lock

from concurrency.fairness import OwnerCounter


class SharesExhausted(Exception):
    """An owner would have more than stays free. Its text continues "too many"."""


class Shares:
    """Args: `most` is all there is."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._shares = OwnerCounter()
        self._returned: deque[tuple[str, int]] = deque()
        self._lock = Lock()

    @property
    def free(self) -> int:
        """Bytes that no owner has."""
        with self._lock:
            self._collect()
            return self._most - self._shares.total

    def take(self, owner: str, amount: int) -> None:
        """Raises SharesExhausted, and takes nothing, where `owner` would have more than stays free."""
        with self._lock:
            self._collect()
            if not self._shares.take(owner, amount, limit=self._most - self._shares.total - amount):
                raise SharesExhausted("hours of audio are being processed")

    def give_back(self, owner: str, amount: int) -> None:
        """Takes no lock: a finaliser may call it in any thread at any moment, also in one that holds the lock."""
        if amount:
            self._returned.append((owner, amount))

    def _collect(self) -> None:
        while self._returned:
            self._shares.give_back(*self._returned.popleft())
