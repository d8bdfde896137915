"""Something that several owners take of, each at most as much as stays free: one half of it, the next a quarter.

    disk = Shares(2 * 1024**3)
    disk.take("org-1", 1 << 20)           Crowded where the owner would have more than is left
    disk.give_back("org-1", 1 << 20)

So whoever comes has something. Threads may share it.
"""

from __future__ import annotations

from collections import Counter, deque
from threading import Lock

from audio.turns import Crowded


class Shares:
    """Args: `most` is all there is."""

    def __init__(self, most: int) -> None:
        self._free = most
        self._taken: Counter[str] = Counter()
        self._returned: deque[tuple[str, int]] = deque()
        self._lock = Lock()

    @property
    def free(self) -> int:
        """What nobody has."""
        with self._lock:
            self._collect()
            return self._free

    def take(self, owner: str, amount: int) -> None:
        """Raises Crowded, and takes nothing, where `owner` would have more than stays free."""
        with self._lock:
            self._collect()
            if self._taken[owner] + amount > self._free - amount:
                raise Crowded("hours of audio are being processed")
            self._taken[owner] += amount
            self._free -= amount

    def give_back(self, owner: str, amount: int) -> None:
        """Takes no lock: a finaliser may call it in any thread at any moment, also in one that holds the lock."""
        self._returned.append((owner, amount))

    def _collect(self) -> None:
        while self._returned:
            owner, amount = self._returned.popleft()
            self._taken[owner] -= amount
            if not self._taken[owner]:
                del self._taken[owner]
            self._free += amount
