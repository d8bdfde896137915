"""Serve's controller: looks every few seconds at what engines report, asks the policy, and scales."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping

from autoscaling.deployment import LOOK_BACK_S, METRICS_INTERVAL_S
from benchmarks.capacity.clock import SimulatedClock
from benchmarks.capacity.engine import SimulatedEngine
from benchmarks.capacity.policies import SimulatedPolicy

LOOK_S = 1.0
"""Between two looks (RAY_SERVE_CONTROL_LOOP_INTERVAL_S)."""

POINTS = 2
"""Times in a look back that a handle counts its calls (RAY_SERVE_AUTOSCALING_METRIC_RECORD_INTERVAL_FACTOR)."""

COUNT_S = LOOK_BACK_S / POINTS

WAKE_S = 0.1
"""From a call for an engine at zero to the controller's look at it."""


class Controller:
    """Scales engines as `policy` says; the simulation begins at the Unix time `epoch_s`.

    `draw` decides when in their intervals looks and counts fall: a short call may be over before anybody counts it.
    """

    def __init__(self, clock: SimulatedClock, epoch_s: float, policy: SimulatedPolicy, draw: random.Random) -> None:
        self._clock, self._epoch_s, self._policy, self._draw = clock, epoch_s, policy, draw
        self._engines: Mapping[str, SimulatedEngine] = {}
        self._points: dict[str, deque[int]] = {}
        self._means: dict[str, float] = {}
        self._is_woken = False

    def watch(self, engines: Mapping[str, SimulatedEngine]) -> None:
        """Begins to look at them."""
        self._engines = engines
        self._points = {name: deque([0], maxlen=POINTS) for name in engines}
        self._clock.at(self._draw.uniform(0, COUNT_S), self._count)
        self._clock.at(self._draw.uniform(0, METRICS_INTERVAL_S), self._report)
        self._clock.at(self._draw.uniform(0, LOOK_S), self._look_and_again)

    def wake(self) -> None:
        """A call has come to an engine at zero."""
        if not self._is_woken:
            self._is_woken = True
            self._clock.at(self._clock.now_s + WAKE_S, self._look)

    def _count(self, _: None) -> None:
        for name, engine in self._engines.items():
            self._points[name].append(engine.calls)
        self._clock.at(self._clock.now_s + COUNT_S, self._count)

    def _report(self, _: None) -> None:
        self._means = {name: sum(points) / len(points) for name, points in self._points.items()}
        self._clock.at(self._clock.now_s + METRICS_INTERVAL_S, self._report)

    def _look_and_again(self, _: None) -> None:
        self._look()
        self._clock.at(self._clock.now_s + LOOK_S, self._look_and_again)

    def _look(self, _: None = None) -> None:
        self._is_woken = False
        reports = {name: engine.report(self._mean(name, engine)) for name, engine in self._engines.items()}
        for name, replicas in self._policy.decide(reports, self._epoch_s + self._clock.now_s).items():
            self._engines[name].replicas.scale(replicas)

    def _mean(self, name: str, engine: SimulatedEngine) -> float:
        """Calls as they were reported last; the one that wakes an engine is reported at once."""
        return self._means.get(name, 0.0) if engine.replicas.running else engine.calls
