"""Forecast for a waiting request: its place, when it will begin, and why it waits.

    Wait         forecast that is sent
    WaitWatch    a request that wants forecasts
    Forecast     of one engine, made at most every LOOK_S for all that want it

What was promised is compared with what came: promises grow until nine waits in ten end before `p90_s` here, too.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, Protocol, cast

from autoscaling.durations import Durations
from autoscaling.turns import Grant, Line, Newcomer, begins, turns
from contract.limits import COLD_RETRY_AFTER_MAX_S

LOOK_S = 1.0
"""Seconds for which a forecast holds; a call that has come since is looked up sooner, after NEWS_S."""
NEWS_S = 0.1

LATE = 0.1
"""The share of waits that are longer than `p90_s`."""
LEARNING = 0.03
STRETCH = (1.0, 3.0)
"""Factors by which `p90_s` grows or shrinks with each promise that was checked, and altogether."""

MEMORY_CALLS, MEMORY_STARTS = 200, 20
"""Number of past times that count."""

SPREAD = 0.25
"""By this share at most `Retry-After` is longer than what it is made of."""

MIN_ETA_CHANGE_S = 0.5
"""Less than this is no news of when a wait ends."""

Why = Literal["queue", "load", "both"]
TIMES = ("eta_s", "p90_s")


@dataclass(frozen=True, slots=True)
class Wait:
    """Forecast for one waiting request.

    Attributes:
        position: 1 is next.
        of: number of requests that wait in this process.
        eta_s, p90_s: seconds until its answer begins, as likely less as more, and in nine cases of ten; None: nothing
            is known of how long calls take here.
    """

    position: int
    of: int
    eta_s: float | None
    p90_s: float | None
    why: Why

    def after(self, passed_s: float) -> Wait:
        """The same forecast that many seconds later."""
        return replace(
            self, **{name: max(0.0, s - passed_s) for name in TIMES if (s := getattr(self, name)) is not None}
        )

    def differs(self, other: Wait) -> bool:
        """Says if `other` differs enough to be sent after this one: by more than a tenth, or MIN_ETA_CHANGE_S."""
        if (self.position, self.of, self.why) != (other.position, other.of, other.why):
            return True
        for name in TIMES:
            before_s, now_s = getattr(self, name), getattr(other, name)
            if (before_s is None) != (now_s is None):
                return True
            if now_s is not None and abs(now_s - before_s) > max(MIN_ETA_CHANGE_S, now_s / 10):
                return True
        return False


class WaitWatch:
    """The wait of one request that wants forecasts of it.

    Attributes:
        begun: future that is done once it waits for the first time.
        due_s: time at which its answer was to begin by the first promise, by the loop's clock.
    """

    def __init__(self, owner: str) -> None:
        self.owner, self.due_s = owner, cast("float | None", None)
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._look: Callable[[], Wait | None] | None = None
        self._learn: Callable[[bool], None] | None = None

    def look(self) -> Wait | None:
        """Seconds that it still has to wait; None if it need not, or no forecast knows it yet."""
        return self._look() if self._look else None

    def answered(self) -> None:
        """The answer begins now."""
        if self._learn and self.due_s is not None:
            self._learn(asyncio.get_running_loop().time() > self.due_s)

    @contextmanager
    def during(self, look: Callable[[], Wait | None], learn: Callable[[bool], None]) -> Iterator[None]:
        """The block is a wait, which `look` describes; `learn` wants to know whether it took longer than promised."""
        self._look, self._learn, self.due_s = look, learn, None
        if not self.begun.done():
            self.begun.set_result(None)
        try:
            yield
        finally:
            self._look = None


class Calls(Protocol):
    """The calls of one engine; `SlotQueue` is this.

    Attributes:
        began_s, ended_s: seconds, while others waited, from a slot to the first of an answer, for streams, and to its
            end; they are emptied.
    """

    began_s: deque[float]
    ended_s: deque[float]

    def line(self, slots: int) -> Line:
        """Requests ahead of it, for a number of slots."""


class Forecast:
    """Forecasts of one ingress process for one engine.

    Args:
        calls: the queue of calls; a call that is watched has its WaitWatch.
        slots: number of slots, now or once it has started.
        load_left_s: quantiles of what is left of its start; None where it runs.

    Attributes:
        waits: the latest of each request that wants them.
    """

    def __init__(
        self, calls: Calls, slots: Callable[[], int], load_left_s: Callable[[], Callable[[float], float] | None]
    ) -> None:
        self._calls, self._slots, self._load_left_s = calls, slots, load_left_s
        self._first, self._service = Durations(MEMORY_CALLS), Durations(MEMORY_CALLS)
        self._draw = random.Random()
        self._stretch = 1.0
        self._at_s = -LOOK_S
        self.waits: dict[object, Wait] = {}
        self._last: Wait | None = None

    @property
    def durations(self) -> dict[str, Durations]:
        """Seconds from a slot to the first of an answer, for streams, and to its end, up to now."""
        for durations, ages_s in ((self._first, self._calls.began_s), (self._service, self._calls.ended_s)):
            while ages_s:
                durations.add(ages_s.popleft())
        return {"first": self._first, "service": self._service}

    def waiting(self, watch: WaitWatch | None) -> AbstractContextManager[None]:
        """The block is a wait, which `watch` follows."""
        return nullcontext() if watch is None else watch.during(partial(self._of, watch), self._learn)

    def retry_after_s(self) -> int | None:
        """Returns when a request without a place may retry: as soon as the last waiting one has begun.

        None where nothing is known of how long calls take.
        """
        self._look(None)
        return None if self._last is None or self._last.eta_s is None else retry_after_s(self._last.eta_s)

    def _learn(self, is_late: bool) -> None:
        stretch = self._stretch * math.exp(LEARNING * (is_late - LATE))
        self._stretch = min(STRETCH[1], max(STRETCH[0], stretch))

    def _of(self, watch: WaitWatch) -> Wait | None:
        self._look(watch)
        wait, now_s = self.waits.get(watch), asyncio.get_running_loop().time()
        if wait and wait.p90_s is not None and watch.due_s is None:
            watch.due_s = self._at_s + wait.p90_s
        return wait and wait.after(now_s - self._at_s)

    def _look(self, watch: WaitWatch | None) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._at_s < (LOOK_S if watch is None or watch in self.waits else NEWS_S):
            return
        self._at_s = now_s
        line, load_left_s, durations = self._calls.line(self._slots()), self._load_left_s(), self.durations
        if watch and all(call.watch is not watch for call in line.queue):
            line.queue.add(watch.owner, Newcomer(watch))
        worked_s = [] if load_left_s else [spent_s for _, spent_s in line.working]
        service_s = 0.0 if self._service.is_empty else self._service.mean()
        order = turns(line, service_s, load_left_s(0.5) if load_left_s else 0.0)
        times = begins(order, worked_s, **durations, load_left_s=load_left_s, draw=self._draw)
        waits = [self._wait(place, turn, times, load_left_s is not None) for place, turn in enumerate(order)]
        self.waits = {turn.watch: wait for turn, wait in zip(order, waits, strict=True) if turn.watch}
        self._last = next(reversed(waits), None)

    def _wait(self, place: int, turn: Grant, times: Sequence[Sequence[float]], is_cold: bool) -> Wait:
        why: Why = "queue" if not is_cold else "both" if turn.after else "load"
        if not (seconds := times[place]):
            return Wait(place + 1, len(times), None, None, why)
        eta_s, p90_s = (seconds[len(seconds) * tenths // 10] for tenths in (5, 9))
        return Wait(place + 1, len(times), eta_s, max(eta_s, p90_s * self._stretch), why)


def retry_after_s(seconds: float) -> int:
    """Whole seconds for `Retry-After`: up to a quarter more, so that those who were refused come one by one."""
    seconds = min(COLD_RETRY_AFTER_MAX_S / (1 + SPREAD), seconds)
    return max(1, math.ceil(seconds * random.uniform(1, 1 + SPREAD)))
