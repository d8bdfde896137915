"""Allowance with a rate a second, of which some may be used ahead of time."""

from __future__ import annotations

import time
from collections.abc import Callable


class Allowance:
    """Units that one owner may use.

    Args:
        per_s: units that it gains a second.
        burst: units that it has at first, and at most.
        clock: in seconds.
    """

    __slots__ = ("_burst_s", "_clock", "_per_s", "_used_until_s")

    def __init__(self, per_s: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s, self._burst_s, self._clock = per_s, burst / per_s, clock
        self._used_until_s = float("-inf")

    def use(self, units: float = 1) -> float:
        """Uses `units`. Returns the seconds until the owner will have gained them; 0 within its burst."""
        now_s = self._clock()
        self._used_until_s = max(self._used_until_s, now_s - self._burst_s) + units / self._per_s
        return max(0.0, self._used_until_s - now_s)
