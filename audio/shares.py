"""Something that several owners take of, each at most as much as stays free: one half of it, the next a quarter.

    disk = Shares(2 * 1024**3)
    disk.take("org-1", 1 << 20)           Crowded where the owner would have more than is left
    disk.give_back("org-1", 1 << 20)

So whoever comes has something. Threads may share it.
"""

from __future__ import annotations

from collections import Counter
from threading import Lock

from audio.turns import Crowded


class Shares:
    """Args: `most` is all there is."""

    def __init__(self, most: int) -> None:
        self.free = most
        self._taken: Counter[str] = Counter()
        self._lock = Lock()

    def take(self, owner: str, amount: int) -> None:
        """Raises Crowded, and takes nothing, where `owner` would have more than stays free."""
        with self._lock:
            if self._taken[owner] + amount > self.free - amount:
                raise Crowded("hours of sound are being heard")
            self._taken[owner] += amount
            self.free -= amount

    def give_back(self, owner: str, amount: int) -> None:
        with self._lock:
            self._taken[owner] -= amount
            self._taken += Counter()  # forgets who has none
            self.free += amount
