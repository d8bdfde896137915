"""The queue of an engine, as one ingress process has it: its slots go to organisations in turn.

    a slot is free               a call gets it at once
    none is                      it waits. The organisation with the fewest calls at work is next, and among equals the
                                 one whose turn was longest ago; within an organisation, first come, first served
    too many wait                the organisation that has the most waiting loses its last call: `QueueFull`
    several organisations come   this process hands out its share of the slots and no more, and a quarter of that is
                                 reserved for those that hold fewer, so that long calls of one do not shut out the short
                                 ones of another. An organisation that holds that few may have any slot

Processes that call one engine each have a queue, and none knows what another has handed out. So the share is what makes
their sum fit: the reserved slots are there, and nobody waits behind a flood in a queue outside of this one.
An organisation that is alone may have all slots of every process.

Serve's own queue knows no organisations and is first come, first served: behind eighty calls of one key the call of
another would wait for all of them. Here it waits for one.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

from autoscaling.engine import NOBODY
from autoscaling.turns import Line, rates
from concurrency.fairness import FairQueue, OwnerCounter, QueueFull

LOOK_AGAIN_S = 0.1
"""Seconds between two looks at the number of slots while calls wait: replicas come and go without a word."""

PRESENT_S = 60.0
"""Seconds after its last call in which an organisation has slots reserved for it."""

RESERVED_SHARE = 4
"""One slot in so many is reserved."""

RECENT = 1000
"""Calls that have come, and that have ended, which are remembered."""


def alone() -> int:
    """One process calls the engine."""
    return 1


class QueueTimeout(Exception):
    """The turn of a call did not come in time."""


@dataclass(frozen=True, slots=True, eq=False)
class Slot:
    """A slot in use: by whom, and since when by the loop's clock, in seconds."""

    owner: Hashable
    since_s: float

    def age_s(self) -> float:
        """For how long it has been in use, in seconds."""
        return asyncio.get_running_loop().time() - self.since_s


class _WaitingCall:
    """One call that waits. `name` tells it from others."""

    def __init__(self, within_s: float, name: object) -> None:
        self.name = name
        self.slot: asyncio.Future[Slot] = asyncio.get_running_loop().create_future()
        self.deadline = asyncio.timeout(within_s)
        self.eviction = asyncio.timeout(None)

    @property
    def has_slot(self) -> bool:
        return self.slot.done() and not self.slot.cancelled()

    def evict(self) -> None:
        """Ends the wait with `QueueFull`."""
        self.eviction.reschedule(asyncio.get_running_loop().time())


class SlotQueue:
    """Slots of one engine. Used in one event loop.

    Args:
        slots: how many calls may be at work now.
        max_waiting: how many more may wait.
        reserves: whether slots are reserved for organisations that hold few.
        sharers: how many processes have a queue before the same slots.
        waits: entered while a call waits for its turn; whatever adds slots may want to know.
    """

    def __init__(
        self,
        slots: Callable[[], int],
        max_waiting: int,
        *,
        reserves: bool = True,
        sharers: Callable[[], int] = alone,
        waits: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._slots = slots
        self._max_waiting = max_waiting
        self._reserves = reserves
        self._sharers = sharers
        self._waits = waits
        self._at_work = OwnerCounter()
        self._used: dict[Slot, None] = {}  # the oldest first
        self._came: deque[tuple[Hashable, float]] = deque(maxlen=RECENT)  # owners, and when they came
        self.began_s: deque[float] = deque(maxlen=RECENT)
        self.ended_s: deque[float] = deque(maxlen=RECENT)
        """Ages of slots as answers began and ended, while calls waited: full engines are slower. Readers empty them."""
        self._waiting: FairQueue[_WaitingCall] = FairQueue()  # calls without a slot, also while an engine starts
        self._ready: FairQueue[_WaitingCall] = FairQueue()  # those among them that could go to work now
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """Calls that wait, also those for an engine that starts."""
        return len(self._waiting)

    @property
    def lines(self) -> dict[Hashable, int]:
        """How many of these each owner has."""
        return self._waiting.lengths()

    @property
    def at_work(self) -> int:
        """Calls that have a slot."""
        return self._at_work.total

    def try_enter(self, owner: str) -> Slot | None:
        """A slot, which `leave` gives back, for a call that need not wait; None where there is none."""
        if self._ready or not (may_work := self._admission(self._slots(), self._at_work)) or not may_work(owner):
            return None
        self._ready.note(owner)
        slot = self._take(owner)
        self._came.append((owner, slot.since_s))
        self._ready.end_turn(owner)
        return slot

    async def enter(
        self,
        owner: str,
        ready: Callable[[], Awaitable[None]],
        within_s: float,
        waiting: Callable[[], AbstractContextManager[object]] = nullcontext,
        name: object = None,
    ) -> Slot:
        """Returns with a slot, which `leave` gives back.

        `ready` is awaited while the call counts as waiting: until an engine has started, say. From then on the turn
        must come in `within_s`; `waiting` is entered if it has to come. `name` tells the call from others in `line`.
        Raises QueueFull, QueueTimeout, and what `ready` raises.
        """
        self._ready.note(owner)
        entry = _WaitingCall(within_s, name)
        self._came.append((owner, asyncio.get_running_loop().time()))
        if evicted := self._waiting.add(owner, entry, self._max_waiting + self._free()):
            evicted.evict()
        try:
            async with entry.eviction:
                await ready()
                self._ready.add(owner, entry)
                self._hand_out()
                if not entry.has_slot:
                    async with entry.deadline:
                        with self._waits(), waiting():
                            await entry.slot
        except BaseException as error:
            if entry.has_slot:
                # It was cancelled in the very moment in which its turn came.
                self.leave(entry.slot.result())
            else:
                self._waiting.remove(owner, entry)
                self._ready.remove(owner, entry)
            if entry.eviction.expired():
                raise QueueFull from None
            if entry.deadline.expired():
                raise QueueTimeout from None
            raise error
        return entry.slot.result()

    def leave(self, slot: Slot) -> None:
        """Gives a slot back, and those that are free to the calls that are next."""
        del self._used[slot]
        if self._waiting:
            self.ended_s.append(slot.age_s())
        self._ready.note(slot.owner)
        self._at_work.give_back(slot.owner)
        self._hand_out()

    def begin(self, slot: Slot) -> None:
        """The answer to a call begins."""
        if self._waiting:
            self.began_s.append(slot.age_s())

    def line(self, slots: int) -> Line:
        """Who is at work and who waits, where there are so many slots, or will be."""
        queue, calls_a_second = self._ready.rehearsal(self._waiting), rates(self._came, PRESENT_S)
        return Line(
            queue, calls_a_second, [(slot.owner, slot.age_s()) for slot in self._used], partial(self._admission, slots)
        )

    def _take(self, owner: Hashable) -> Slot:
        slot = Slot(owner, asyncio.get_running_loop().time())
        self._at_work.take(owner)
        self._used[slot] = None
        return slot

    def _hand_out(self) -> None:
        """Hands every free slot out, and looks again later if calls still wait."""
        while self._ready and (may_work := self._admission(self._slots(), self._at_work)):
            owner = self._ready.next(self._at_work, may_work)
            if owner is None:
                break
            entry = self._ready.pop(owner)
            if entry.slot.done():  # its caller has gone
                continue
            self._waiting.remove(owner, entry)
            entry.slot.set_result(self._take(owner))
        if self._ready and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_AGAIN_S, self._look_again)

    def _look_again(self) -> None:
        self._timer = None
        self._hand_out()

    def _admission(self, slots: int, at_work: OwnerCounter) -> Callable[[Hashable], bool] | None:
        """Says of an owner whether a slot that is free now is one for it; None if no slot is free."""
        slots = max(1, slots)
        if slots <= at_work.total:
            return None
        share = math.ceil(slots / self._sharers())
        reserved_slots = max(1, share // RESERVED_SHARE) if slots > 1 else 0
        is_free_for_all = not self._reserves or at_work.total + reserved_slots < share
        return lambda owner: is_free_for_all or at_work[owner] < reserved_slots or not self._has_company(owner)

    def _free(self) -> int:
        return max(1, self._slots()) - self._at_work.total

    def _has_company(self, owner: Hashable) -> bool:
        """Whether other organisations were here a moment ago."""
        return any(other != NOBODY for other in self._ready.others(owner, PRESENT_S))
