"""Plays a trace: the same one gives the same result for the same seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle

import numpy as np
import numpy.typing as npt

from benchmarks.capacity.clock import SimulatedClock
from benchmarks.capacity.controller import Controller
from benchmarks.capacity.engine import Setup, SimulatedEngine, SimulatedOutcome
from benchmarks.capacity.policies import SimulatedPolicy
from benchmarks.capacity.replicas import Cluster, SimulatedCall
from benchmarks.capacity.traces import SimulatedTrace

AT_ONCE = 20_000
"""Requests that are made Python's numbers at one time."""

LOOKS = 240
"""Points of a series over the whole time."""


@dataclass(frozen=True)
class EngineResult:
    """Result of one engine. `looks` are [time_s, running, replicas, waiting]."""

    name: str
    replica_s: float
    cost_micro_eur: float
    starts: int
    cold_hits: int
    looks: list[tuple[float, int, int, int]] = field(repr=False)


@dataclass(frozen=True)
class Result:
    """Result of a trace: of each request its `Outcome` and the seconds until a replica began with it, and engines.

    A request that is open when the trace ends has waited until then.
    """

    policy: str
    seconds: float
    outcome: npt.NDArray[np.uint8]
    wait_s: npt.NDArray[np.float32]
    engines: list[EngineResult]


def simulate(
    trace: SimulatedTrace,
    setups: Mapping[str, Setup],
    policy: SimulatedPolicy,
    name: str = "",
    *,
    room: Mapping[str, float] | None = None,
    ingresses: int = 1,
    seed: int = 1,
    grace_s: float = 60.0,
) -> Result:
    """Plays `trace` on its engines, and for `grace_s` after the last request.

    `room` is what there is of each resource that engines share; a replica that starts waits for it.
    """
    clock, draw = SimulatedClock(), random.Random(seed)
    controller = Controller(clock, trace.epoch_s, policy, draw)
    outcome = np.zeros(len(trace), np.uint8)
    wait_s = np.zeros(len(trace), np.float32)

    def over(call: SimulatedCall, what: SimulatedOutcome, seconds: float) -> None:
        outcome[call.number] = what
        wait_s[call.number] = seconds

    cluster = Cluster(room or {})
    engines = [
        SimulatedEngine(setups[label], clock, over, controller.wake, _starts(setups[label], draw), cluster, ingresses)
        for label in trace.engines
    ]
    controller.watch(dict(zip(trace.engines, engines, strict=True)))
    end_s = (float(trace.at_s[-1]) if len(trace) else 0.0) + grace_s
    looks = _looks(engines, clock, end_s / LOOKS)
    _play(trace, engines, clock)
    clock.run_until(end_s)
    return Result(
        name, end_s, outcome, wait_s, [_result(engine, series) for engine, series in zip(engines, looks, strict=True)]
    )


def _looks(
    engines: Sequence[SimulatedEngine], clock: SimulatedClock, apart_s: float
) -> list[list[tuple[float, int, int, int]]]:
    """Observations of each engine from now on; they fill as time passes."""
    looks: list[list[tuple[float, int, int, int]]] = [[] for _ in engines]

    def look(_: None) -> None:
        for engine, series in zip(engines, looks, strict=True):
            series.append((clock.now_s, engine.replicas.running, engine.replicas.target, engine.waiting))
        clock.at(clock.now_s + apart_s, look)

    clock.at(0.0, look)
    return looks


def _play(trace: SimulatedTrace, engines: Sequence[SimulatedEngine], clock: SimulatedClock) -> None:
    columns = (trace.at_s, trace.engine, trace.owner, trace.work_s)
    for first in range(0, len(trace), AT_ONCE):
        rows = zip(*(column[first : first + AT_ONCE].tolist() for column in columns), strict=True)
        for number, (at_s, engine, owner, work_s) in enumerate(rows, first):
            clock.run_until(at_s)
            engines[engine].take(SimulatedCall(number, owner, at_s, work_s))


def _starts(setup: Setup, draw: random.Random) -> Callable[[], float]:
    """Seconds of starts: those that were measured, or those of the stanza, give or take a tenth."""
    if setup.starts_s:
        return partial(next, cycle(setup.starts_s))
    return lambda: setup.serving.load_s * draw.uniform(0.9, 1.1)


def _result(engine: SimulatedEngine, looks: list[tuple[float, int, int, int]]) -> EngineResult:
    replicas = engine.replicas
    replica_s = replicas.replica_s()
    cost = replica_s / 3600 * engine.setup.micro_eur_an_hour
    return EngineResult(engine.setup.deployment, replica_s, cost, replicas.starts, engine.cold_hits, looks)
