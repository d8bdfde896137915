"""The decision: what each engine wishes, and who gets it where engines share GPUs or memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from autoscaling.policy.demand import backlog_wait_s, replicas_to_start, steady_wait_s
from autoscaling.policy.facts import Facts, ScalingDecision, Terms
from autoscaling.policy.memory import SETTLED_S, Memory

REVERSAL_S = 600.0
"""Cooldown in seconds between growing and shrinking: one reversal in ten minutes.

Sooner only after a burst, where one in BURST_RATIO of its replicas is enough.
"""
BURST_RATIO = 3

DEAD_BAND = 0.5
"""A replica goes only where without it the wait stays below this part of the target."""

SPARE = 0.75
"""And where without it no more than this share of the slots would be at work."""

FULL = 0.9
"""The share of slots that may be at work on average: calls come at random."""

JUMP_S = 60.0
"""More than this between two looks, or less than nothing, is a clock that was reset."""

IDLE, WANTED, PROMISED = range(3)
"""Reasons for a replica above the floor, in the order in which they give way."""


@dataclass(frozen=True, slots=True)
class Wish:
    """Target of an engine if it were alone.

    Attributes:
        floor: replicas that work, or that Serve's bounds keep; they are never taken.
        replicas: number of replicas that it wishes.
        rank: of the last of them: IDLE, WANTED or PROMISED.
        worth: among those of one rank, the least gives way first. For WANTED the seconds that a request has waited.
    """

    floor: int
    replicas: int
    rank: int
    worth: float
    why: str


class ScalingPolicy:
    """Decides for all engines that share a cluster.

    Attributes:
        terms: by the name of an engine; engines may come and go between decisions.
        memories: learned values, by the same names.
        failures: of the engines for which the last decision failed, by the same names.
    """

    def __init__(self, terms: Mapping[str, Terms] | None = None) -> None:
        self.terms: dict[str, Terms] = dict(terms or {})
        self.memories: dict[str, Memory] = {}
        self.failures: dict[str, Exception] = {}
        self._decided_s: float | None = None

    def decide(self, facts: Mapping[str, Facts], pool: Mapping[str, float], now_s: float) -> dict[str, ScalingDecision]:
        """Returns the target of every engine of `facts` at a Unix time in seconds, except those that fail.

        What one of these remembered is forgotten, for it may be why it failed.

        `pool` is how much there is of each resource that is short; others are not looked at. Replicas that leave
        may still hold resources: whatever starts replicas waits for them.
        """
        self._follow_clock(now_s)
        wishes, self.failures = {}, {}
        for name, seen in facts.items():
            memory = self.memories.setdefault(name, Memory())
            try:
                memory.learn(seen, now_s)
                wishes[name] = wish(self.terms[name], seen, memory, now_s)
            except Exception as error:
                self.failures[name] = error
                del self.memories[name]
        granted = share(wishes, self.terms, pool)
        decisions = {}
        for name, wished in wishes.items():
            replicas, target = granted[name], facts[name].target
            if facts[name].calls:
                self.memories[name].turn(replicas - target, now_s)
            lost = "no room" if wished.replicas > target else "makes room"
            decisions[name] = ScalingDecision(replicas, wished.why if replicas == wished.replicas else lost)
        return decisions

    def _follow_clock(self, now_s: float) -> None:
        before_s, self._decided_s = self._decided_s, now_s
        if before_s is not None and not 0 <= now_s - before_s <= JUMP_S:
            for memory in self.memories.values():
                memory.shift(now_s - before_s)


def wish(terms: Terms, facts: Facts, memory: Memory, now_s: float) -> Wish:
    """Returns the target of one engine if it were alone.

    Calls come at random, so a temporary rise means nothing as long as all have slots. Where all places are
    taken, refused calls are not reported: then it takes twice the replicas that run.
    """
    service_s, load_s = memory.service_s or terms.target_wait_s, memory.load_s or terms.load_s
    lefts_s = memory.lefts_s(terms, now_s)
    works = min(facts.running, math.ceil(facts.calls / terms.slots))
    if facts.running and memory.idle_s(now_s) <= SETTLED_S:
        works = max(works, 1)
    floor = max(works, terms.least)
    promised = max(terms.least, int(any(hours.hold(now_s) for hours in terms.warm)))
    without = facts.calls - facts.running * terms.slots
    is_full = terms.places is not None and without >= FULL * terms.places
    least = max(floor, promised, int(facts.calls > 0), 2 * facts.running if is_full else 0)
    waited_s = 0.0 if memory.waiting_s is None else now_s - memory.waiting_s
    rate = max(memory.rate, memory.surge) / FULL if without > 0 and memory.service_s else 0.0
    more = replicas_to_start(
        facts.calls, rate, facts.running, lefts_s, terms.slots, service_s, load_s, terms.target_wait_s
    )
    if more > 0 or least > facts.target:
        replicas = min(terms.most, max(least, facts.target + more))
        why = "calls wait" if facts.calls else "hours of warmth"
        rank = WANTED if facts.calls else PROMISED
        return Wish(floor, replicas, rank, waited_s, why)
    target = min(facts.target, terms.most)
    if not facts.calls:
        return _idle(terms, memory, floor, promised, target, now_s)
    can_go = target > max(least, 1) and _can_do_with(target - 1, terms, facts, memory, service_s)
    if can_go and _may_shrink(target, terms, facts, memory, service_s, now_s):
        return Wish(floor, target - 1, WANTED, 0.0, "one less is enough")
    why = "at work" if facts.running else "calls wait"
    return Wish(floor, target, IDLE if can_go else WANTED, waited_s, why)


def _idle(terms: Terms, memory: Memory, floor: int, promised: int, target: int, now_s: float) -> Wish:
    idle_s, price_s = memory.idle_s(now_s), memory.price_s(terms)
    stay_s = memory.stay_s(terms)
    if idle_s >= stay_s or target <= promised:
        why = "hours of warmth" if promised > terms.least else "idle"
        return Wish(floor, min(target, max(floor, promised)), PROMISED, math.inf, why)
    is_fresh = memory.started_s is not None and now_s - memory.started_s < terms.idle_least_s
    chance = memory.gaps.chance(memory.active_s or now_s, idle_s, price_s)
    worth = price_s * (price_s / (price_s + idle_s) if chance is None else chance)
    rank = PROMISED if is_fresh else IDLE
    return Wish(floor, target, rank, worth, f"stays warm for {stay_s - idle_s:.0f} s more")


def _may_shrink(target: int, terms: Terms, facts: Facts, memory: Memory, service_s: float, now_s: float) -> bool:
    """Says if a replica may stop without a second reversal in ten minutes."""
    if not memory.is_growing or now_s - memory.grown_s >= REVERSAL_S:
        return True
    is_first = now_s - memory.turned_s >= REVERSAL_S
    return is_first and target >= BURST_RATIO and _can_do_with(target // BURST_RATIO, terms, facts, memory, service_s)


def _can_do_with(replicas: int, terms: Terms, facts: Facts, memory: Memory, service_s: float) -> bool:
    """Says if that number of replicas stays well below the target, with current calls and those of the last minutes."""
    slots, calls = replicas * terms.slots, max(memory.mean_calls, facts.calls, memory.rate * service_s)
    now_wait_s = backlog_wait_s(facts.calls, min(replicas, facts.running), [], terms.slots, service_s)
    most_s = DEAD_BAND * terms.target_wait_s
    return calls <= SPARE * slots and max(now_wait_s, steady_wait_s(calls, slots, service_s)) <= most_s


def share(wishes: Mapping[str, Wish], terms: Mapping[str, Terms], pool: Mapping[str, float]) -> dict[str, int]:
    """Replicas of each engine, such that all fit: who is worth least for what it takes gives way first.

    No engine gives way to one that would not fit if it were alone.
    """
    granted = {name: wished.replicas for name, wished in wishes.items()}
    for resource, amount in pool.items():
        there_is = amount * (1 + 1e-9)
        needs = {name: need for name in wishes if (need := terms[name].needs.get(resource, 0.0)) > 0}
        for name, need in needs.items():
            if granted[name] * need > there_is:
                granted[name] = min(granted[name], max(wishes[name].floor, int(there_is // need)))
        too_much = sum(granted[name] * need for name, need in needs.items()) - there_is
        for name in sorted(needs, key=lambda name: (wishes[name].rank, wishes[name].worth / needs[name], name)):
            if too_much <= 0:
                break
            gives = min(math.ceil(too_much / needs[name]), max(0, granted[name] - wishes[name].floor))
            granted[name] -= gives
            too_much -= gives * needs[name]
    return granted
