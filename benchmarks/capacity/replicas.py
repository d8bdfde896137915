"""The replicas of one simulated engine: they start, work and stop, and take money while they are there."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from heapq import heappop, heappush

from autoscaling.slots import Slot
from benchmarks.capacity.clock import SimulatedClock


class SimulatedCall:
    """One call: what it asks, and where it is.

    Attributes:
        number: of its request in the trace.
        work_s: time that a replica with nothing else to do works on it.
        slot: its slot, once it has one.
        began_s: time at which a replica began to work on it.
        is_over: whether it was refused or gave up.
    """

    __slots__ = ("began_s", "came_s", "is_over", "number", "owner", "slot", "work_s")

    def __init__(self, number: int, owner: int, came_s: float, work_s: float) -> None:
        self.number, self.owner, self.came_s, self.work_s = number, owner, came_s, work_s
        self.slot: Slot | None = None
        self.began_s = 0.0
        self.is_over = False


class SimulatedReplica:
    """Works on calls. With n at work each takes `1 + slowdown * (n - 1)` times as long as alone: they share a machine.

    Attributes:
        began_s: time from which it exists; None while there is no room for it.
        work: calls at work, by the progress at which they end, the first first.
        progress_s: time that a call which was here from the beginning would have worked, had it been alone.
    """

    __slots__ = ("began_s", "number", "progress_s", "promised_s", "seen_s", "work")

    def __init__(self, number: int) -> None:
        self.number = number
        self.began_s: float | None = None
        self.work: list[tuple[float, int, SimulatedCall]] = []
        self.progress_s = self.seen_s = 0.0
        self.promised_s = float("inf")


class Cluster:
    """Room that engines share; a replica that starts waits until there is enough.

    Args:
        room: amount of each resource, by Ray's names; of others there is enough.
    """

    def __init__(self, room: Mapping[str, float]) -> None:
        self._left = dict(room)
        self._waiting: deque[tuple[Mapping[str, float], Callable[[], bool]]] = deque()

    def place(self, needs: Mapping[str, float], start: Callable[[], bool]) -> None:
        """Calls `start` once there is room for `needs`; it says whether it takes it."""
        self._waiting.append((needs, start))
        self._fill()

    def give_back(self, needs: Mapping[str, float]) -> None:
        """A replica is gone."""
        self._take(needs, -1)
        self._fill()

    def _take(self, needs: Mapping[str, float], times: int) -> None:
        for resource in self._left:
            self._left[resource] -= times * needs.get(resource, 0.0)

    def _fill(self) -> None:
        for _ in range(len(self._waiting)):
            needs, start = self._waiting.popleft()
            if any(needs.get(resource, 0.0) > left + 1e-9 for resource, left in self._left.items()):
                self._waiting.append((needs, start))
            elif start():
                self._take(needs, 1)


class Replicas:
    """All of one engine.

    Args:
        slots: calls that one may work on.
        ended: called with each call that has ended.
        changed: called when replicas have come.
        cluster, needs: their cluster, and the resources that each takes there.

    Attributes:
        running: number of them that take calls.
        starts: number of starts that were begun.
        working: calls at work or in the router's queue.
        last_load_s: duration of the newest start; None once it was read.
        stopped_s: seconds that those which are gone were there.
    """

    def __init__(
        self,
        clock: SimulatedClock,
        slots: int,
        load_s: Callable[[], float],
        slowdown: float,
        ended: Callable[[SimulatedCall], None],
        changed: Callable[[], None],
        cluster: Cluster,
        needs: Mapping[str, float],
    ) -> None:
        self._cluster, self._needs = cluster, needs
        self._clock, self._slots, self._load_s, self._slowdown = clock, slots, load_s, slowdown
        self._ended, self._changed = ended, changed
        self._levels: list[dict[int, SimulatedReplica]] = [{} for _ in range(slots + 1)]
        """Those that run, by how many calls they work on."""
        self._starting: dict[int, SimulatedReplica] = {}
        self._stopping: dict[int, SimulatedReplica] = {}
        self._queue: deque[SimulatedCall] = deque()
        """Calls that found no free slot, as Serve's router keeps them."""
        self.running, self.starts, self.working, self.stopped_s = 0, 0, 0, 0.0
        self.last_load_s: float | None = None

    @property
    def slots(self) -> int:
        """Calls that those that run can work on."""
        return self.running * self._slots

    @property
    def target(self) -> int:
        """Replicas that there are or will be, without those that stop."""
        return self.running + len(self._starting)

    def replica_s(self) -> float:
        """Seconds that all of them were there until now."""
        there = (
            *self._starting.values(),
            *self._stopping.values(),
            *(r for level in self._levels for r in level.values()),
        )
        return self.stopped_s + sum(map(self._age_s, there))

    def scale(self, target: int) -> None:
        """Starts and stops replicas; those that start stop first, then those with the least work."""
        while self.target < target:
            replica = SimulatedReplica(self.starts)
            self.starts += 1
            self._starting[replica.number] = replica
            self._cluster.place(self._needs, partial(self._place_replica, replica))
        while self.target > target:
            if self._starting:
                _, replica = self._starting.popitem()
                if replica.began_s is not None:
                    self._gone(replica)
            else:
                self._stop(next(level for level in self._levels if level).popitem()[1])

    def send(self, call: SimulatedCall) -> None:
        """`call` goes to the replica with the least work, or waits for the next free slot."""
        self.working += 1
        self._place(call)

    def _place(self, call: SimulatedCall) -> None:
        for load, level in enumerate(self._levels[:-1]):
            if level:
                number, replica = level.popitem()
                self._levels[load + 1][number] = replica
                return self._work(replica, call)
        self._queue.append(call)

    def _work(self, replica: SimulatedReplica, call: SimulatedCall) -> None:
        self._advance(replica)
        call.began_s = self._clock.now_s
        heappush(replica.work, (replica.progress_s + call.work_s, call.number, call))
        self._promise(replica)

    def _advance(self, replica: SimulatedReplica) -> None:
        now_s = self._clock.now_s
        replica.progress_s += (now_s - replica.seen_s) / (1 + self._slowdown * max(0, len(replica.work) - 1))
        replica.seen_s = now_s

    def _promise(self, replica: SimulatedReplica) -> None:
        """Has the next end of a call at `replica` happen, unless that is known already."""
        if not replica.work:
            replica.promised_s = float("inf")
            return
        left_s = replica.work[0][0] - replica.progress_s
        ends_s = self._clock.now_s + left_s * (1 + self._slowdown * (len(replica.work) - 1))
        if ends_s != replica.promised_s:
            replica.promised_s = ends_s
            self._clock.at(ends_s, self._end, (replica, ends_s))

    def _end(self, promise: tuple[SimulatedReplica, float]) -> None:
        replica, ends_s = promise
        if ends_s != replica.promised_s:  # others have come or gone since
            return
        load = len(replica.work)
        self._advance(replica)
        call = heappop(replica.work)[2]
        replica.promised_s = 0.0
        if replica.number in self._stopping:
            if load == 1:
                self._gone(self._stopping.pop(replica.number))
        else:
            del self._levels[load][replica.number]
            self._levels[load - 1][replica.number] = replica
        self._promise(replica)
        self.working -= 1
        self._take_from_queue()
        self._ended(call)

    def _take_from_queue(self) -> None:
        while self._queue and any(self._levels[:-1]):
            self._place(self._queue.popleft())

    def _place_replica(self, replica: SimulatedReplica) -> bool:
        """It begins to load, unless it was stopped before there was room."""
        if replica.number not in self._starting:
            return False
        replica.began_s = self._clock.now_s
        self._clock.at(self._clock.now_s + self._load_s(), self._started, replica)
        return True

    def _started(self, replica: SimulatedReplica) -> None:
        if self._starting.pop(replica.number, None) is None:  # it was stopped before
            return
        replica.seen_s = self._clock.now_s
        self.last_load_s = replica.seen_s - (replica.began_s or 0.0)
        self._levels[0][replica.number] = replica
        self.running += 1
        self._take_from_queue()
        self._changed()

    def _stop(self, replica: SimulatedReplica) -> None:
        self.running -= 1
        if replica.work:
            self._stopping[replica.number] = replica
        else:
            self._gone(replica)

    def _gone(self, replica: SimulatedReplica) -> None:
        self.stopped_s += self._age_s(replica)
        self._cluster.give_back(self._needs)

    def _age_s(self, replica: SimulatedReplica) -> float:
        return 0.0 if replica.began_s is None else self._clock.now_s - replica.began_s
