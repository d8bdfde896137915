"""Serve's controller: looks every few seconds at what engines report, asks the policy, and scales."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from autoscaling.deployment import LOOK_BACK_S, METRICS_INTERVAL_S
from autoscaling.simulation.clock import SimulatedClock
from autoscaling.simulation.engine import SimulatedEngine
from autoscaling.simulation.policies import SimulatedPolicy

POINTS = 3
"""Times in a look back that a handle counts its calls (RAY_SERVE_AUTOSCALING_METRIC_RECORD_INTERVAL_FACTOR)."""

WAKE_S = 0.1
"""From a call for an engine at zero to the controller's look at it."""


class Controller:
    """Scales `engines`, by their names, as `policy` says; the simulation begins at the Unix time `epoch_s`."""

    def __init__(self, clock: SimulatedClock, epoch_s: float, policy: SimulatedPolicy) -> None:
        self._clock, self._epoch_s, self._policy = clock, epoch_s, policy
        self._engines: Mapping[str, SimulatedEngine] = {}
        self._points: dict[str, deque[int]] = {}
        self._is_woken = False

    def watch(self, engines: Mapping[str, SimulatedEngine]) -> None:
        """Begins to look at them."""
        self._engines = engines
        self._points = {name: deque(maxlen=POINTS) for name in engines}
        self._clock.at(0.0, self._count)
        self._clock.at(0.0, self._look_and_again)

    def wake(self) -> None:
        """A call has come to an engine at zero."""
        if not self._is_woken:
            self._is_woken = True
            self._clock.at(self._clock.now_s + WAKE_S, self._look)

    def _count(self, _: None) -> None:
        for name, engine in self._engines.items():
            self._points[name].append(engine.calls)
        self._clock.at(self._clock.now_s + LOOK_BACK_S / POINTS, self._count)

    def _look_and_again(self, _: None) -> None:
        self._look()
        self._clock.at(self._clock.now_s + METRICS_INTERVAL_S, self._look_and_again)

    def _look(self, _: None = None) -> None:
        self._is_woken = False
        reports = {name: engine.report(self._mean(name, engine)) for name, engine in self._engines.items()}
        for name, replicas in self._policy.decide(reports, self._epoch_s + self._clock.now_s).items():
            self._engines[name].replicas.scale(replicas)

    def _mean(self, name: str, engine: SimulatedEngine) -> float:
        """Calls over the look back; the one that wakes an engine is reported at once."""
        if not engine.replicas.running:
            return engine.calls
        points = self._points[name]
        return sum(points) / max(1, len(points))
