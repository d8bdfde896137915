"""Policies of a simulation: that of production, and those that it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from autoscaling.policy import Facts, ScalingPolicy
from benchmarks.capacity.engine import Setup
from benchmarks.capacity.serve_default import default_decision


class SimulatedPolicy(Protocol):
    """Decides for all engines."""

    def decide(self, facts: Mapping[str, Facts], now_s: float) -> Mapping[str, int]:
        """Replicas of each engine from now on, at a Unix time in seconds."""


class Planned:
    """The policy of production; `old` is one that has learned before."""

    def __init__(self, engines: Mapping[str, Setup], room: Mapping[str, float], old: ScalingPolicy | None = None):
        self._policy = old or ScalingPolicy({name: setup.terms for name, setup in engines.items()})
        self._room = room

    def decide(self, facts: Mapping[str, Facts], now_s: float) -> Mapping[str, int]:
        return {name: decision.replicas for name, decision in self._policy.decide(facts, self._room, now_s).items()}


class AlwaysOn:
    """Every engine has all its replicas all the time."""

    def __init__(self, engines: Mapping[str, Setup], room: Mapping[str, float]) -> None:
        self._most = {name: setup.config.max_replicas for name, setup in engines.items()}

    def decide(self, facts: Mapping[str, Facts], now_s: float) -> Mapping[str, int]:
        return self._most


class ServeDefault:
    """Serve's own policy with the delays of each stanza."""

    def __init__(self, engines: Mapping[str, Setup], room: Mapping[str, float]) -> None:
        self._engines = engines
        self._states: dict[str, dict[str, Any]] = {name: {} for name in engines}

    def decide(self, facts: Mapping[str, Facts], now_s: float) -> Mapping[str, int]:
        targets = {}
        for name, seen in facts.items():
            targets[name], self._states[name] = default_decision(
                self._engines[name].config, seen.running, seen.target, seen.calls, now_s, self._states[name]
            )
        return targets


POLICIES: Mapping[str, Callable[[Mapping[str, Setup], Mapping[str, float]], SimulatedPolicy]] = {
    "parlance": Planned,
    "serve": ServeDefault,
    "always on": AlwaysOn,
}
