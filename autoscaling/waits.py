"""When will a call that waits begin? Arithmetic over what one ingress process sees; nobody is asked.

turns      in which order calls get slots, by the queue's own rule, and how many others end before
begins     the times that follow: a few hundred futures are played through, each with times that were seen before
Forecast   both for one engine, at most every LOOK_S however many want to know
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from typing import Any, Literal, NamedTuple

from autoscaling.sketch import Sketch
from concurrency.fairness import FairQueue, OwnerCounter
from contract.limits import COLD_RETRY_AFTER_MAX_S

LOOK_S = 1.0
"""Seconds for which a forecast holds; a call that has come since is looked up sooner, after NEWS_S."""
NEWS_S = 0.1

FUTURES = (16, 200)
DRAWS = 6000
"""Times that are drawn for one forecast, about: 5 ms of a core, in which nobody else is answered."""

MEMORY_CALLS, MEMORY_STARTS = 200, 20
"""How many of the last times count."""

SPREAD = 0.25
"""By this share at most `Retry-After` is longer than what it is made of."""

Why = Literal["queue", "load", "both"]
TIMES = ("eta_s", "p90_s")


class Newcomer(NamedTuple):
    """A call that would come now."""

    name: object


@dataclass(frozen=True, slots=True)
class Line:
    """Who is before an engine now.

    Attributes:
        queue: a copy. Each call has a `name`, None where nobody wants to know of it.
        working: owners of calls at work and for how many seconds they have been, the oldest first.
        admission: what says of an owner whether a slot that is free is one for it, by who is at work; None: none is.
    """

    queue: FairQueue[Any]
    working: Sequence[tuple[Hashable, float]]
    admission: Callable[[OwnerCounter], Callable[[Hashable], bool] | None]


class Turn(NamedTuple):
    """A call that waits, and how many others end before it begins."""

    name: object
    after: int


@dataclass(frozen=True, slots=True)
class Wait:
    """What one who waits can be told.

    Attributes:
        position: 1 is next.
        of: so many wait in this process.
        eta_s, p90_s: seconds until it begins, as likely less as more, and in nine cases of ten; None: nothing is known
            of how long calls take here.
    """

    position: int
    of: int
    eta_s: float | None
    p90_s: float | None
    why: Why

    def after(self, passed_s: float) -> Wait:
        """The same so many seconds later."""
        return replace(
            self, **{name: max(0.0, s - passed_s) for name in TIMES if (s := getattr(self, name)) is not None}
        )


class WaitWatch:
    """The wait of one request that wants to be told of it. `begun` is done once it waits for the first time."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._look: Callable[[], Wait | None] | None = None

    def look(self) -> Wait | None:
        """How long it still has to wait; None where it does not, or no forecast knows it yet."""
        return self._look() if self._look else None

    @contextmanager
    def during(self, look: Callable[[], Wait | None]) -> Iterator[None]:
        """The block is a wait, of which `look` tells."""
        self._look = look
        if not self.begun.done():
            self.begun.set_result(None)
        try:
            yield
        finally:
            self._look = None


def turns(line: Line) -> list[Turn]:
    """The calls that wait, the next first, if those at work end in the order in which they began. Uses `line` up."""
    queue, at_work, working = line.queue, OwnerCounter(), deque(owner for owner, _ in line.working)
    for owner in working:
        at_work.take(owner)
    order: list[Turn] = []
    ended = 0
    while queue:
        may_work = line.admission(at_work)
        owner_next = queue.next(at_work, may_work) if may_work else None
        if owner_next is not None:
            order.append(Turn(queue.pop(owner_next).name, ended))
            at_work.take(owner_next)
            working.append(owner_next)
        elif working:
            at_work.give_back(working.popleft())
            ended += 1
        else:
            break
    return order


def begins(
    order: Sequence[Turn],
    worked_s: Sequence[float],
    service: Sketch,
    load_left_s: Callable[[float], float] | None,
    draw: random.Random,
) -> list[list[float]]:
    """Seconds until each of `order` begins, in each of some futures, ascending.

    Args:
        order: as `turns` says.
        worked_s: for how long those at work have been.
        service: how long calls take.
        load_left_s: quantiles of what is left of a start, where no replica runs. Nobody is at work then.
        draw: where the futures come from.
    """
    futures = max(FUTURES[0], min(FUTURES[1], DRAWS // max(1, len(order) + len(worked_s))))
    times_s = [service.quantile((number + 0.5) / 256) for number in range(256)] if not service.is_empty else []
    begun: list[list[float]] = [[] for _ in order]
    for number in range(futures):
        # The largest part of it is spread evenly, so that fewer futures do.
        now_s = load_left_s((number + draw.random()) / futures) if load_left_s else 0.0
        busy = [now_s + service.left(spent_s, draw.random()) for spent_s in worked_s] if times_s else []
        heapify(busy)
        ended = 0
        for place, turn in enumerate(order):
            while ended < turn.after and busy:
                now_s = heappop(busy)
                ended += 1
            if ended < turn.after:
                break
            begun[place].append(now_s)
            if times_s:
                heappush(busy, now_s + times_s[int(draw.random() * 256)])
    return [sorted(seconds) for seconds in begun]


class Forecast:
    """What one ingress process expects of one engine.

    Args:
        line: who is before it, given how many slots there are. Calls that want to know are named by their WaitWatch.
        ended_s: for how long slots were in use that were given back; it is emptied.
        slots: that there are, or will be once it has started.
        load_left_s: quantiles of what is left of its start; None where it runs.
    """

    def __init__(
        self,
        line: Callable[[int], Line],
        ended_s: deque[float],
        slots: Callable[[], int],
        load_left_s: Callable[[], Callable[[float], float] | None],
    ) -> None:
        self._line, self._ended_s, self._slots, self._load_left_s = line, ended_s, slots, load_left_s
        self._service = Sketch(MEMORY_CALLS)
        self._draw = random.Random()
        self._at_s = -LOOK_S
        self._waits: dict[object, Wait] = {}
        self._last: Wait | None = None

    @property
    def service(self) -> Sketch:
        """How long calls take, in seconds, those that have ended up to now among them."""
        while self._ended_s:
            self._service.add(self._ended_s.popleft())
        return self._service

    def waiting(self, watch: WaitWatch | None) -> AbstractContextManager[None]:
        """The block is a wait, of which `watch` is told."""
        return nullcontext() if watch is None else watch.during(lambda: self._of(watch))

    def retry_after_s(self) -> int | None:
        """When one may come again for whom there is no place now: as soon as the last that waits has begun.

        None where nothing is known of how long calls take.
        """
        self._look(None)
        return None if self._last is None or self._last.eta_s is None else retry_after_s(self._last.eta_s)

    def _of(self, watch: WaitWatch) -> Wait | None:
        self._look(watch)
        wait = self._waits.get(watch)
        return wait and wait.after(asyncio.get_running_loop().time() - self._at_s)

    def _look(self, watch: WaitWatch | None) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._at_s < (LOOK_S if watch is None or watch in self._waits else NEWS_S):
            return
        self._at_s = now_s
        line, load_left_s = self._line(self._slots()), self._load_left_s()
        if watch and all(call.name is not watch for call in line.queue):
            line.queue.add(watch.owner, Newcomer(watch))
        worked_s = [] if load_left_s else [spent_s for _, spent_s in line.working]
        order = turns(line)
        times = begins(order, worked_s, self.service, load_left_s, self._draw)
        waits = [_wait(place, turn, times, load_left_s is not None) for place, turn in enumerate(order)]
        self._waits = {turn.name: wait for turn, wait in zip(order, waits, strict=True) if turn.name}
        self._last = next(reversed(waits), None)


def _wait(place: int, turn: Turn, times: Sequence[Sequence[float]], is_cold: bool) -> Wait:
    why: Why = "queue" if not is_cold else "both" if turn.after else "load"
    eta_s, p90_s = (
        (seconds[len(seconds) * tenths // 10] for tenths in (5, 9)) if (seconds := times[place]) else (None, None)
    )
    return Wait(place + 1, len(times), eta_s, p90_s, why)


def retry_after_s(seconds: float) -> int:
    """Whole seconds for `Retry-After`: up to a quarter more, so that those who were refused come one by one."""
    seconds = min(COLD_RETRY_AFTER_MAX_S / (1 + SPREAD), seconds)
    return max(1, math.ceil(seconds * random.uniform(1, 1 + SPREAD)))
