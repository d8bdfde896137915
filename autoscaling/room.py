"""The fair queue of an engine, as one ingress process has it: places at work go to organisations in turn.

    a place is free              a call goes to work at once
    none is                      it waits. The organisation with the fewest calls at work is next, and among equals the
                                 one whose turn was longest ago; within an organisation, first come, first served
    too many wait                the organisation that has the most waiting loses its last call: `Full`
    several organisations come   this process hands out its share of the places and no more, and a quarter of that is
                                 kept for those that hold fewer, so that long calls of one do not shut out the short
                                 ones of another. Who holds that few may have any place

Processes that call one engine each have a room, and none knows what another has handed out. So the share is what makes
their sum fit: the places that they keep are there, and nobody waits behind a flood in a queue outside of the room.
An organisation that is alone may have all places of every process.

Serve's own queue knows no organisations and is first come, first served: behind eighty calls of one key the call of
another would wait for all of them. Here it waits for one.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import count

from autoscaling.engine import NOBODY

LOOK_AGAIN_S = 0.1
"""Replicas come and go without a word: while calls wait, the number of places is looked at this often."""

PRESENT_S = 60.0
"""So long after its last call an organisation has places kept for it."""

KEPT_SHARE = 4
"""One place in so many is kept."""


def alone() -> int:
    """One process calls the engine."""
    return 1


class Full(Exception):
    """Too many calls wait already."""


class Late(Exception):
    """The turn of a call did not come in time."""


class _Waiting:
    """One call that waits."""

    def __init__(self, organisation: int, within_s: float) -> None:
        self.organisation = organisation
        self.turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.patience = asyncio.timeout(within_s)
        self.stay = asyncio.timeout(None)
        """Ends at once when the call is sent away."""

    @property
    def has_turn(self) -> bool:
        """Whether it holds a place at work."""
        return self.turn.done() and not self.turn.cancelled()

    @property
    def is_leaving(self) -> bool:
        """Whether it needs no place any more."""
        return self.turn.done() or self.stay.when() is not None

    def send_away(self) -> None:
        """It gets `Full` instead of a place."""
        self.stay.reschedule(asyncio.get_running_loop().time())


class WaitingRoom:
    """Places at one engine. Used in one event loop.

    Args:
        places: how many calls may be at work now.
        max_waiting: how many more may wait.
        keeps: whether places are kept for organisations that hold few.
        sharers: how many processes have a room before the same places.
        waits: entered while a call waits for its turn; whoever adds places may want to know.
    """

    def __init__(
        self,
        places: Callable[[], int],
        max_waiting: int,
        *,
        keeps: bool = True,
        sharers: Callable[[], int] = alone,
        waits: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._places = places
        self._max_waiting = max_waiting
        self._keeps = keeps
        self._sharers = sharers
        self._waits = waits
        self._at_work: Counter[int] = Counter()
        self._inside: dict[int, list[_Waiting]] = {}
        """Everybody who waits, by organisation, in the order of their coming."""
        self._queues: dict[int, deque[_Waiting]] = {}
        """Those among them that could go to work now."""
        self._present: OrderedDict[int, float] = OrderedDict()
        """When each organisation was last here, in that order."""
        self._turns = count(1)
        self._last_turn: dict[int, int] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """Calls that wait, also those for an engine that starts."""
        return sum(map(len, self._inside.values()))

    @property
    def inside(self) -> int:
        """Calls at work, and those that wait."""
        return self._at_work.total() + self.waiting

    async def enter(self, organisation: int, ready: Callable[[], Awaitable[None]], within_s: float) -> None:
        """Returns with a place at work, which `leave` gives back.

        `ready` is awaited inside the room: an engine that starts, say. From then on the turn must come in `within_s`.
        Raises Full, Late, and what `ready` raises.
        """
        self._note(organisation)
        self._make_room(organisation)
        one = _Waiting(organisation, within_s)
        self._inside.setdefault(organisation, []).append(one)
        try:
            async with one.stay:
                await ready()
                self._queues.setdefault(organisation, deque()).append(one)
                self._call_next()
                if not one.has_turn:
                    async with one.patience:
                        with self._waits():
                            await one.turn
        except BaseException as error:
            if one.has_turn:
                # It was cancelled in the very moment in which its turn came.
                self.leave(organisation)
            if one.stay.expired():
                raise Full from None
            if one.patience.expired():
                raise Late from None
            raise error
        finally:
            self._go_out(one)

    def leave(self, organisation: int) -> None:
        """Gives a place back, and those that are free to whoever is next."""
        self._note(organisation)
        self._at_work[organisation] -= 1
        if not self._at_work[organisation]:
            del self._at_work[organisation]
        self._call_next()

    def _go_out(self, one: _Waiting) -> None:
        inside = self._inside[one.organisation]
        inside.remove(one)
        if not inside:
            del self._inside[one.organisation]
        queue = self._queues.get(one.organisation)
        if queue and one in queue:
            queue.remove(one)
        if queue is not None and not queue:
            del self._queues[one.organisation]

    def _make_room(self, organisation: int) -> None:
        """Sends the last call of the longest queue away if too many wait. Raises Full where that is the new one."""
        if self.waiting < self._max_waiting + self._free():
            return
        longest = max(self._inside.values(), key=len, default=[])
        if len(longest) <= len(self._inside.get(organisation, ())) + 1:
            raise Full
        last = next((one for one in reversed(longest) if not one.is_leaving), None)
        if last is None:
            raise Full
        last.send_away()

    def _call_next(self) -> None:
        """Gives every free place away, and looks again later if somebody is left."""
        while self._queues and (organisation := self._next()) is not None:
            queue = self._queues[organisation]
            one = queue.popleft()
            if not queue:
                del self._queues[organisation]
            if one.is_leaving:
                continue
            self._at_work[organisation] += 1
            self._last_turn[organisation] = next(self._turns)
            one.turn.set_result(None)
        if self._queues and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_AGAIN_S, self._look_again)

    def _look_again(self) -> None:
        self._timer = None
        self._call_next()

    def _next(self) -> int | None:
        """The organisation whose call is next; None if there is no place for any."""
        if self._free() <= 0:
            return None
        may_work = filter(self._may_work, self._queues)
        return min(may_work, key=lambda who: (self._at_work[who], self._last_turn.get(who, 0)), default=None)

    def _may_work(self, organisation: int) -> bool:
        """Whether a place that is free is one for `organisation`."""
        if not self._keeps or not self._has_company(organisation):
            return True
        places = max(1, self._places())
        share = math.ceil(places / self._sharers())
        kept = max(1, share // KEPT_SHARE) if places > 1 else 0
        return self._at_work.total() + kept < share or self._at_work[organisation] < kept

    def _free(self) -> int:
        return max(1, self._places()) - self._at_work.total()

    def _has_company(self, organisation: int) -> bool:
        """Whether others were here a moment ago."""
        since_s = time.monotonic() - PRESENT_S
        for other, seen_s in reversed(self._present.items()):
            if seen_s < since_s:
                return False
            if other not in (organisation, NOBODY):
                return True
        return False

    def _note(self, organisation: int) -> None:
        now_s = time.monotonic()
        self._present[organisation] = now_s
        self._present.move_to_end(organisation)
        while next(iter(self._present.values())) < now_s - PRESENT_S:
            gone, _ = self._present.popitem(last=False)
            self._last_turn.pop(gone, None)
