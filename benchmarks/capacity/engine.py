"""One simulated engine: the gate's table and the rooms of production in front of replicas that only count time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from ray.serve.config import AutoscalingConfig

from autoscaling.policy import Facts, Terms
from autoscaling.slots import SlotScheduler, places, queues_when_cold
from benchmarks.capacity.clock import SimulatedClock
from benchmarks.capacity.replicas import Cluster, Replicas, SimulatedCall
from concurrency.fairness import QueueFull
from contract.catalog import Serving


class SimulatedOutcome(IntEnum):
    """Outcome of a request; those that are not over when the simulation ends are OPEN."""

    OPEN = 0
    ANSWERED = 1
    BUSY = 2
    WARMING_UP = 3
    UPSTREAM_TIMEOUT = 4


@dataclass(frozen=True, slots=True)
class Setup:
    """Simulated settings of an engine.

    Attributes:
        deployment: its name.
        serving: of its stanza.
        config: Serve's options of autoscaling, of the same stanza.
        terms: of the policy, of the same stanza.
        slowdown: by this share of its time alone a call is longer for each other one at the same replica.
        micro_eur_an_hour: cost of a replica that exists.
        starts_s: seconds of starts that were measured, which come again in turn; empty: those of `serving`.
    """

    deployment: str
    serving: Serving
    config: AutoscalingConfig
    terms: Terms
    slowdown: float = 0.0
    micro_eur_an_hour: int = 0
    starts_s: Sequence[float] = ()


class SimulatedEngine:
    """Takes calls, and reports the outcome of each to `over`.

    Args:
        over: called with the call, its outcome and the seconds that it waited.
        woken: called when a call comes while no replica runs.
        ingresses: processes that each have a room.
        load_s: gives the seconds of the next start.
        cluster: cluster of its replicas.
    """

    def __init__(
        self,
        setup: Setup,
        clock: SimulatedClock,
        over: Callable[[SimulatedCall, SimulatedOutcome, float], None],
        woken: Callable[[], None],
        load_s: Callable[[], float],
        cluster: Cluster,
        ingresses: int = 1,
    ) -> None:
        self.setup, self._clock, self._over, self._woken = setup, clock, over, woken
        serving = setup.serving
        self.replicas = Replicas(
            clock,
            serving.max_ongoing_requests,
            load_s,
            setup.slowdown,
            self._ended,
            self._replicas_came,
            cluster,
            setup.terms.needs,
        )
        queues = serving.when_busy == "queue"
        self._refuses_busy = not queues
        self._rooms: Sequence[SlotScheduler[SimulatedCall]] = [
            SlotScheduler(
                lambda: places(serving, self.replicas.slots),
                serving.max_queued if queues else 0,
                clock,
                reserves=queues,
                sharers=lambda: ingresses,
            )
            for _ in range(ingresses)
        ]
        self._cold: dict[SimulatedCall, None] = {}
        """Calls that wait for a start."""
        self.cold_hits = 0
        self._ended_calls, self._worked_s = 0, 0.0

    @property
    def waiting(self) -> int:
        """Calls without a slot."""
        return sum(room.waiting for room in self._rooms)

    def report(self, calls: float) -> Facts:
        """Arrivals since the last report; `calls` on average."""
        ended, worked_s, load_s = self._ended_calls, self._worked_s, self.replicas.last_load_s
        self._ended_calls, self._worked_s, self.replicas.last_load_s = 0, 0.0, None
        return Facts(self.replicas.running, self.replicas.target, calls, ended, worked_s, load_s)

    @property
    def calls(self) -> int:
        """Calls that Serve sees at work or waiting; of those that wait for a start it sees the one that wakes."""
        return self.replicas.working + self.waiting - max(0, len(self._cold) - 1)

    def take(self, call: SimulatedCall) -> None:
        """A call comes."""
        replicas, room = self.replicas, self._room(call)
        if not replicas.running:
            self.cold_hits += 1
            self._woken()
            if not queues_when_cold(self.setup.serving):
                return self._over(call, SimulatedOutcome.WARMING_UP, 0.0)
        elif self._refuses_busy and replicas.working >= replicas.slots:
            return self._over(call, SimulatedOutcome.BUSY, 0.0)
        elif slot := room.try_enter(call.owner):
            call.slot = slot
            return replicas.send(call)
        self._wait(room, call)

    def _wait(self, room: SlotScheduler[SimulatedCall], call: SimulatedCall) -> None:
        try:
            evicted = room.join(call.owner, call)
        except QueueFull:
            return self._over(call, SimulatedOutcome.BUSY, 0.0)
        if evicted is not None:
            self._give_up(evicted, SimulatedOutcome.BUSY)
        if self.replicas.running:
            self._line_up(room, call)
        else:
            self._cold[call] = None
            self._clock.at(call.came_s + self.setup.serving.wait_s, self._start_is_late, call)

    def _line_up(self, room: SlotScheduler[SimulatedCall], call: SimulatedCall) -> None:
        room.line_up(call.owner, call)
        self._seat(room)
        if call.slot is None:
            self._clock.at(self._clock.now_s + self.setup.serving.deadline_s, self._turn_is_late, call)

    def _seat(self, room: SlotScheduler[SimulatedCall]) -> None:
        while turn := room.next_turn():
            owner, call = turn
            call.slot = room.seat(owner, call)
            self.replicas.send(call)

    def _ended(self, call: SimulatedCall) -> None:
        self._over(call, SimulatedOutcome.ANSWERED, call.began_s - call.came_s)
        room = self._room(call)
        assert call.slot is not None
        self._ended_calls += 1
        self._worked_s += self._clock.now_s - call.slot.since_s
        room.release(call.slot)
        if room.waiting:
            self._seat(room)

    def _replicas_came(self) -> None:
        cold, self._cold = self._cold, {}
        for call in cold:
            self._line_up(self._room(call), call)
        for room in self._rooms:
            self._seat(room)

    def _start_is_late(self, call: SimulatedCall) -> None:
        if call in self._cold:
            del self._cold[call]
            self._give_up(call, SimulatedOutcome.WARMING_UP)

    def _turn_is_late(self, call: SimulatedCall) -> None:
        if call.slot is None and not call.is_over:
            self._give_up(call, SimulatedOutcome.UPSTREAM_TIMEOUT)

    def _give_up(self, call: SimulatedCall, outcome: SimulatedOutcome) -> None:
        self._cold.pop(call, None)
        self._room(call).forget(call.owner, call)
        call.is_over = True
        self._over(call, outcome, self._clock.now_s - call.came_s)

    def _room(self, call: SimulatedCall) -> SlotScheduler[SimulatedCall]:
        return self._rooms[call.number % len(self._rooms)]
