"""Order and times of slots for waiting calls: arithmetic over what one ingress process sees.

turns      the order, by the queue's own rule, and how many others end before each
begins     the times that follow: some futures are played through, each with times that were seen before
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, merge
from itertools import islice
from operator import itemgetter
from typing import Any, NamedTuple

from autoscaling.durations import Durations
from concurrency.fairness import FairQueue, OwnerCounter

FUTURES = (16, 200)
DRAWS = 6000
"""Times that are drawn for one forecast, about: 5 ms of a core, in which no other request is answered."""


ARRIVALS = 500
"""Calls that are expected to come, in one forecast; 2 for each that waits where these are more."""


class Newcomer(NamedTuple):
    """A call that would come now."""

    watch: object


NEW_CALL = Newcomer(None)
"""A call that is expected to come."""


@dataclass(frozen=True, slots=True)
class Line:
    """Owners at an engine now.

    Attributes:
        queue: a copy. Each call has a `name`, None if it is not asked for.
        rates: calls a second of each owner, lately.
        working: owners of calls at work and for how many seconds they have been, the oldest first.
        admission: makes, of the calls at work by owner, a test of owners for a free slot; None where no slot is free.
    """

    queue: FairQueue[Any]
    rates: Mapping[Hashable, float]
    working: Sequence[tuple[Hashable, float]]
    admission: Callable[[OwnerCounter], Callable[[Hashable], bool] | None]


class Grant(NamedTuple):
    """A call that waits, and how many others end before it begins."""

    watch: object
    after: int


def rates(came: deque[tuple[Hashable, float]], lately_s: float, now_s: float) -> dict[Hashable, float]:
    """Calls a second of each owner, of who `came` and when; those of one second count once, for bursts end."""
    since_s = max(now_s - lately_s, came[0][1] if len(came) == came.maxlen else 0.0)
    seconds = {(owner, int(came_s)) for owner, came_s in came if came_s >= since_s}
    return {owner: count / max(1.0, now_s - since_s) for owner, count in Counter(owner for owner, _ in seconds).items()}


def arrivals(owner: Hashable, rate: float, most: int) -> Iterator[tuple[float, Hashable]]:
    """Seconds until each of the next calls of `owner` comes, and `owner`."""
    for number in range(1, most + 1):
        yield number / rate, owner


def turns(line: Line, service_s: float, lead_s: float = 0.0) -> list[Grant]:
    """The calls that wait, the next first, if those at work end in the order in which they began. Uses `line` up.

    Organisations go on calling as they did, and what comes of them meanwhile has its turn as well: calls take
    `service_s`, and none begins for `lead_s`. By turns, no more of one organisation than wait now can come before the
    last of these; where the reserve of slots would let more, this still ends. Of all, ARRIVALS come at most,
    or 2 for each that waits.
    """
    queue, at_work, working = line.queue, OwnerCounter(), deque(owner for owner, _ in line.working)
    for owner in working:
        at_work.take(owner)
    order: list[Grant] = []
    waiting, ended, now_s = len(queue), 0, lead_s
    calls = (arrivals(owner, rate, waiting) for owner, rate in line.rates.items())
    coming = deque(islice(merge(*calls, key=itemgetter(0)), max(ARRIVALS, 2 * waiting)))
    while len(order) < waiting:
        while coming and coming[0][0] <= now_s:
            queue.add(coming.popleft()[1], NEW_CALL)
        may_work = line.admission(at_work)
        owner_next = queue.next(at_work, may_work) if may_work else None
        if owner_next is not None:
            if (call := queue.pop(owner_next)) is not NEW_CALL:
                order.append(Grant(call.watch, ended))
            at_work.take(owner_next)
            working.append(owner_next)
        elif working:
            at_work.give_back(working.popleft())
            ended += 1
            now_s += service_s / (1 + len(working))
        else:
            break
    return order


def begins(
    order: Sequence[Grant],
    worked_s: Sequence[float],
    first: Durations,
    service: Durations,
    load_left_s: Callable[[float], float] | None,
    draw: random.Random,
) -> list[list[float]]:
    """Seconds until the answer to each of `order` begins, in each of some futures, ascending.

    Args:
        order: as `turns` says.
        worked_s: times for which the calls at work have been there.
        first: times from a slot to the start of an answer; zero if unknown.
        service: times of calls from a slot to their end.
        load_left_s: quantiles of what is left of a start, where no replica runs. No call is at work then.
        draw: source of randomness of the futures.
    """
    futures = max(FUTURES[0], min(FUTURES[1], DRAWS // max(1, len(order) + len(worked_s))))
    begun: list[list[float]] = [[] for _ in order]
    for number in range(futures):
        # The largest part of it is spread evenly, so that fewer futures do.
        now_s = load_left_s((number + draw.random()) / futures) if load_left_s else 0.0
        busy = [now_s + service.left(spent_s, draw.random()) for spent_s in worked_s] if not service.is_empty else []
        heapify(busy)
        ended = 0
        for place, turn in enumerate(order):
            while ended < turn.after and busy:
                now_s = heappop(busy)
                ended += 1
            if ended < turn.after:
                break
            begun[place].append(now_s + (0.0 if first.is_empty else first.quantile(draw.random())))
            if not service.is_empty:
                heappush(busy, now_s + service.quantile(draw.random()))
    return [sorted(seconds) for seconds in begun]
