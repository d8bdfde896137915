"""Assigns the slots of an engine in one ingress process: decisions only, nothing is awaited here.

    a slot is free               a call gets it at once
    none is                      it waits. The organisation with the fewest calls at work is next, and among equals the
                                 one with the oldest turn; within an organisation, first come, first served
    too many wait                the organisation that has the most waiting loses its last call: `QueueFull`
    several organisations come   this process hands out its share of the slots and no more, and a quarter of that is
                                 reserved for those that hold fewer, so that long calls of one do not shut out the short
                                 ones of another. An organisation that holds that few may have any slot

Processes that call one engine each have a scheduler, and none knows what another has handed out. So the share is what
makes their sum fit: the reserved slots are there, and no call waits behind a flood in a queue outside of this one.
An organisation that is alone may have all slots of every process.

Serve's own queue knows no organisations and is first come, first served: behind eighty calls of one key the call of
another would wait for all of them. Here it waits for one.

`autoscaling.queue` lets coroutines wait in it; `benchmarks.capacity` plays a day of calls through it.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from autoscaling.engine import NOBODY
from autoscaling.turns import Line, rates
from concurrency.fairness import FairQueue, OwnerCounter
from contract.catalog import Serving

T = TypeVar("T")

PRESENT_S = 60.0
"""Seconds after its last call in which an organisation has slots reserved for it."""

RESERVED_SHARE = 4
"""One slot in this many is reserved."""

RECENT = 1000
"""Calls that have come, and that have ended, which are remembered."""


def alone() -> int:
    """One process calls the engine."""
    return 1


def queues_when_cold(serving: Serving) -> bool:
    """Says if a call is held while no replica runs; otherwise it is refused, and a warm call wakes the engine."""
    return serving.when_cold == "wait"


def places(serving: Serving, slots: int) -> int:
    """Calls that may be at work or on their way there.

    With `when_busy = "refuse"` Serve's router refuses, exactly, over all ingress replicas. So more pass here.
    """
    return slots + (serving.max_queued if serving.when_busy == "refuse" else 0)


@dataclass(frozen=True, slots=True, eq=False)
class Slot:
    """A slot in use: by whom, and since when by the clock of its scheduler, in seconds."""

    owner: Hashable
    since_s: float


class SlotScheduler(Generic[T]):
    """Slots of one engine, and entries of type T that wait for them.

    Args:
        slots: number of calls that may be at work now.
        max_waiting: number of further calls that may wait.
        clock: seconds.
        reserves: whether slots are reserved for organisations that hold few.
        sharers: number of processes that schedule the same slots.
    """

    def __init__(
        self,
        slots: Callable[[], int],
        max_waiting: int,
        clock: Callable[[], float] = time.monotonic,
        *,
        reserves: bool = True,
        sharers: Callable[[], int] = alone,
    ) -> None:
        self._slots = slots
        self._max_waiting = max_waiting
        self._clock = clock
        self._reserves = reserves
        self._sharers = sharers
        self._at_work = OwnerCounter()
        self._used: dict[Slot, None] = {}  # the oldest first
        self._came: deque[tuple[Hashable, float]] = deque(maxlen=RECENT)  # owners, and when they came
        self.began_s: deque[float] = deque(maxlen=RECENT)
        self.ended_s: deque[float] = deque(maxlen=RECENT)
        """Ages of slots as answers began and ended, while calls waited: full engines are slower. Readers empty them."""
        self._waiting: FairQueue[T] = FairQueue(clock)  # calls without a slot, also while an engine starts
        self._ready: FairQueue[T] = FairQueue(clock)  # those among them that could go to work now

    @property
    def waiting(self) -> int:
        """Calls that wait, also those for an engine that starts."""
        return len(self._waiting)

    @property
    def lines(self) -> dict[Hashable, int]:
        """Number of calls that wait, by owner."""
        return self._waiting.lengths()

    @property
    def at_work(self) -> int:
        """Calls that have a slot."""
        return self._at_work.total

    def try_enter(self, owner: Hashable) -> Slot | None:
        """A slot, which `leave` gives back, for a call that need not wait; None where there is none."""
        if self._ready or not (may_work := self._admission(self._slots(), self._at_work)) or not may_work(owner):
            return None
        self._ready.note(owner)
        slot = self._take(owner)
        self._came.append((owner, slot.since_s))
        self._ready.end_turn(owner)
        return slot

    def join(self, owner: Hashable, entry: T) -> T | None:
        """`entry` waits from now on. The result is the entry that has lost its place for it, if one has.

        Raises QueueFull.
        """
        self._ready.note(owner)
        self._came.append((owner, self._clock()))
        return self._waiting.add(owner, entry, self._max_waiting + max(1, self._slots()) - self._at_work.total)

    def line_up(self, owner: Hashable, entry: T) -> None:
        """`entry`, which has joined, could go to work now: the engine runs. Turns follow."""
        self._ready.add(owner, entry)

    def forget(self, owner: Hashable, entry: T) -> None:
        """`entry` waits no longer, if it still did."""
        self._waiting.remove(owner, entry)
        self._ready.remove(owner, entry)

    def release(self, slot: Slot) -> None:
        """Gives a slot back. Turns follow."""
        del self._used[slot]
        if self._waiting:
            self.ended_s.append(self._clock() - slot.since_s)
        self._ready.note(slot.owner)
        self._at_work.give_back(slot.owner)

    def leave(self, slot: Slot) -> None:
        """Gives a slot back, and those that are free to the calls that are next."""
        self.release(slot)
        if self._ready:
            self._hand_out()

    def _hand_out(self) -> None:
        """Hands every free slot out, in a subclass that lets calls wait."""

    def next_turn(self) -> tuple[Hashable, T] | None:
        """The next entry, and its owner; it has its slot with `seat`. None: no slot is for anybody."""
        if not self._ready or not (may_work := self._admission(self._slots(), self._at_work)):
            return None
        owner = self._ready.next(self._at_work, may_work)
        return None if owner is None else (owner, self._ready.pop(owner))

    def seat(self, owner: Hashable, entry: T) -> Slot:
        """The slot of `entry`, which is next; `release` gives it back."""
        self._waiting.remove(owner, entry)
        return self._take(owner)

    def begin(self, slot: Slot) -> None:
        """The answer to a call begins."""
        if self._waiting:
            self.began_s.append(self._clock() - slot.since_s)

    def line(self, slots: int) -> Line:
        """Calls at work and calls that wait, for a number of slots now or later."""
        now_s = self._clock()
        working = [(slot.owner, now_s - slot.since_s) for slot in self._used]
        calls_a_second = rates(self._came, PRESENT_S, now_s)
        return Line(self._ready.rehearsal(self._waiting), calls_a_second, working, partial(self._admission, slots))

    def _take(self, owner: Hashable) -> Slot:
        slot = Slot(owner, self._clock())
        self._at_work.take(owner)
        self._used[slot] = None
        return slot

    def _admission(self, slots: int, at_work: OwnerCounter) -> Callable[[Hashable], bool] | None:
        """Says of an owner whether a slot that is free now is one for it; None if no slot is free."""
        slots = max(1, slots)
        if slots <= at_work.total:
            return None
        share = math.ceil(slots / self._sharers())
        reserved_slots = max(1, share // RESERVED_SHARE) if slots > 1 else 0
        is_free_for_all = not self._reserves or at_work.total + reserved_slots < share
        return lambda owner: is_free_for_all or at_work.get(owner, 0) < reserved_slots or not self._has_company(owner)

    def _has_company(self, owner: Hashable) -> bool:
        """Says if other organisations called a moment ago."""
        return any(other != NOBODY for other in self._ready.others(owner, PRESENT_S))
