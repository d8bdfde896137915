"""Virtual time: it jumps from one event to the next."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any

Act = Callable[[Any], None]


class SimulatedClock:
    """Seconds since the simulation began, and what happens later. Events of one moment happen in their order.

    Attributes:
        now_s: present time; calling the clock returns it too.
        next_s: time of the next event; infinite if there is none.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self._events: list[tuple[float, int, Act, Any]] = []
        self._numbers = count()

    def __call__(self) -> float:
        return self.now_s

    @property
    def next_s(self) -> float:
        return self._events[0][0] if self._events else float("inf")

    def at(self, at_s: float, act: Act, what: Any = None) -> None:
        """Calls `act(what)` at `at_s`, or now where that is over."""
        heappush(self._events, (at_s if at_s > self.now_s else self.now_s, next(self._numbers), act, what))

    def run_until(self, end_s: float) -> None:
        """Has all events happen until `end_s`, which the clock shows then."""
        events = self._events
        while events and events[0][0] <= end_s:
            self.now_s, _, act, what = heappop(events)
            act(what)
        self.now_s = end_s
