"""A cluster in which a second is a step: engines with slots, starts that take time, and room for only a few."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ray.serve.config import AutoscalingConfig

from autoscaling.policy import Facts, ScalingDecision, ScalingPolicy, Terms
from benchmarks.capacity.serve_default import default_decision

MONDAY_S = 1_763_942_400.0
"""A Monday at midnight, UTC."""

Decide = Callable[[Mapping[str, Facts], Mapping[str, float], float], Mapping[str, ScalingDecision]]


@dataclass
class Engine:
    """One engine. `service_s` and `load_s` are what is true; its `terms` may think otherwise."""

    terms: Terms
    service_s: float = 1.0
    load_s: float = 5.0
    target: int = 0
    running: int = 0
    starts: list[float] = field(default_factory=list)
    """Time left of each start."""
    at_work: list[float] = field(default_factory=list)
    """Time left of each call."""
    waiting: list[float] = field(default_factory=list)
    """For how long each has waited."""
    waits_s: list[float] = field(default_factory=list)
    replica_s: float = 0.0
    ended: int = 0

    def facts(self) -> Facts:
        ended, self.ended = self.ended, 0
        calls = len(self.waiting) + len(self.at_work)
        return Facts(self.running, self.target, calls, ended, ended * self.service_s)

    def come(self, calls: int) -> None:
        self.waiting += [0.0] * calls
        self.target = max(self.target, int(bool(self.waiting) and not self.running))  # as Serve does at once

    def step(self, may_start: int) -> None:
        busy = math.ceil(len(self.at_work) / self.terms.slots)
        self.running = max(busy, min(self.running, self.target))
        wanted = max(0, self.target - self.running)
        self.starts = self.starts[:wanted]
        self.starts += [self.load_s] * min(may_start, wanted - len(self.starts))
        self.replica_s += self.running + len(self.starts)
        self.starts = [left_s - 1 for left_s in self.starts]
        self.running += sum(left_s <= 0 for left_s in self.starts)
        self.starts = [left_s for left_s in self.starts if left_s > 0]
        going_on = [left_s - 1 for left_s in self.at_work if left_s > 1]
        self.ended += len(self.at_work) - len(going_on)
        free = self.running * self.terms.slots - len(going_on)
        self.waits_s += self.waiting[: max(0, free)]
        self.at_work = going_on + [self.service_s] * len(self.waiting[: max(0, free)])
        self.waiting = [waited_s + 1 for waited_s in self.waiting[max(0, free) :]]

    def takes(self, resource: str) -> float:
        return (self.running + len(self.starts)) * self.terms.needs.get(resource, 0.0)


@dataclass
class World:
    """Engines by name, and what there is for them. `look` is called after each decision."""

    engines: dict[str, Engine]
    room: Mapping[str, float] = field(default_factory=dict)
    now_s: float = MONDAY_S
    look: Callable[[World, Mapping[str, ScalingDecision]], None] = lambda world, decisions: None

    def run(self, arrivals: Mapping[str, Sequence[int]], decide: Decide | None = None) -> None:
        decide = decide or ScalingPolicy({name: engine.terms for name, engine in self.engines.items()}).decide
        for calls in zip(*arrivals.values(), strict=True):
            for name, count in zip(arrivals, calls, strict=True):
                self.engines[name].come(count)
            decisions = decide({name: engine.facts() for name, engine in self.engines.items()}, self.room, self.now_s)
            self.look(self, decisions)
            for name, decision in decisions.items():
                engine = self.engines[name]
                engine.target = max(decision.replicas, int(bool(engine.waiting) and not engine.running))
                engine.step(self.places(engine))
            self.now_s += 1

    def places(self, engine: Engine) -> int:
        fits = [
            (self.room[name] - sum(each.takes(name) for each in self.engines.values()) + 1e-9) // need
            for name, need in engine.terms.needs.items()
            if name in self.room
        ]
        return max(0, int(min(fits, default=1000)))


def serve_default(target_ongoing: float, idle_s: float, most: int) -> Decide:
    """Serve's own policy: replicas for the calls there are, and fewer only after `idle_s`."""
    config = AutoscalingConfig(
        min_replicas=0,
        max_replicas=most,
        target_ongoing_requests=target_ongoing,
        upscale_delay_s=5,
        downscale_delay_s=idle_s,
    )
    states: dict[str, dict[str, Any]] = {}

    def decide(facts: Mapping[str, Facts], _: Mapping[str, float], now_s: float) -> dict[str, ScalingDecision]:
        decisions = {}
        for name, seen in facts.items():
            replicas, states[name] = default_decision(
                config, seen.running, seen.target, seen.calls, now_s, states.get(name, {})
            )
            decisions[name] = ScalingDecision(replicas, "default")
        return decisions

    return decide
