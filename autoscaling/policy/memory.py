"""Memory of the policy about one engine between two passes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from autoscaling.policy.facts import Facts, Terms
from autoscaling.policy.gaps import Gaps

CALM_S = 120.0
"""Over about this many seconds the mean of calls is taken that decides whether a replica may go."""

RATE_S = 15.0
"""Over about this many seconds the rate is taken in which calls come."""

RECENT = 200
"""Of this many calls that ended the mean time is taken."""

Z_SCORE = 3.0
"""Standard deviations of a count by which what came in one look may be more than usual, and mean nothing."""

OVERDUE_FRACTION = 0.1
"""A start that takes longer than expected is taken to need this part of it still."""

SETTLED_S = 4.0
"""An engine is idle after this many seconds without a call: reports are as old as that."""


@dataclass(slots=True)
class Memory:
    """Observations of one engine. Instants are Unix times in seconds; None: not seen yet.

    Attributes:
        gaps: between its requests.
        service_s: time for which a call holds a slot; None until one ended.
        load_s: duration of a start; None until one was measured.
        mean_calls: in the system, over the last CALM_S.
        rate: calls that came each second, over the last RATE_S.
        surge: the same, over the last look alone: as many as came almost certainly.
        ended: calls, RECENT at most.
        looked_s: time at which the last facts came.
        active_s: time at which a call was last seen.
        waiting_s: time from which calls have waited for a replica that does not run.
        started_s: time from which a replica has run that has ended no call yet.
        asked_s: times at which replicas were requested that do not run yet, the oldest first.
        grown_s: time at which load last brought a replica.
        turned_s: time at which it first sent one away after that.
    """

    gaps: Gaps = field(default_factory=Gaps)
    service_s: float | None = None
    load_s: float | None = None
    mean_calls: float = 0.0
    rate: float = 0.0
    surge: float = 0.0
    ended: int = 0
    looked_s: float | None = None
    active_s: float | None = None
    waiting_s: float | None = None
    started_s: float | None = None
    asked_s: list[float] = field(default_factory=list)
    grown_s: float = -math.inf
    turned_s: float = -math.inf
    _has_called: bool = False
    """Says if `active_s` is the time of a call, and not of the first look."""
    _calls: float = 0.0
    _running: int | None = None
    _stay: tuple[tuple[float, ...], float] | None = None
    """The last answer of `stay_s`, and to what: it is asked in each look, and changes once in a gap."""

    def learn(self, facts: Facts, now_s: float) -> None:
        """Takes what was seen at `now_s`, which is never before what was seen last."""
        passed_s = 0.0 if self.looked_s is None else now_s - self.looked_s
        self.looked_s = now_s
        self.mean_calls += (facts.calls - self.mean_calls) * (1 - math.exp(-passed_s / CALM_S))
        if passed_s:
            came = max(0.0, facts.calls - self._calls + facts.ended)
            self.rate += (came / passed_s - self.rate) * (1 - math.exp(-passed_s / RATE_S))
            self.surge = max(0.0, came - Z_SCORE * math.sqrt(came)) / passed_s
        self._calls = facts.calls
        if facts.ended > 0:
            mean_s = facts.worked_s / facts.ended
            self.ended = min(RECENT, self.ended + facts.ended)
            before_s = mean_s if self.service_s is None else self.service_s
            self.service_s = max(0.001, before_s + (mean_s - before_s) * min(1.0, facts.ended / self.ended))
        if facts.load_s is not None and facts.load_s > 0:
            self.load_s = facts.load_s if self.load_s is None else (self.load_s + facts.load_s) / 2
        self._learn_replicas(facts, now_s)
        self._learn_gap(facts, now_s)

    def _learn_replicas(self, facts: Facts, now_s: float) -> None:
        starting = max(0, facts.target - facts.running)
        self.asked_s = self.asked_s[-starting:] if starting else []
        self.asked_s += [now_s] * (starting - len(self.asked_s))
        if not facts.running:
            self.started_s = None
        elif self._running == 0:
            self.started_s = now_s
        elif facts.ended:
            self.started_s = None
        self._running = facts.running
        waits = facts.calls > 0 and not facts.running
        self.waiting_s = (self.waiting_s or now_s) if waits else None

    def _learn_gap(self, facts: Facts, now_s: float) -> None:
        if not (facts.calls or facts.ended):
            self.active_s = now_s if self.active_s is None else self.active_s
            return
        if self._has_called and self.active_s is not None and now_s - self.active_s > SETTLED_S:
            self.gaps.add(self.active_s, now_s - self.active_s)
        self.active_s, self._has_called = now_s, True

    def turn(self, more: int, now_s: float) -> None:
        """Number of replicas that come because of load, or go where it is less than 0."""
        if more > 0:
            self.grown_s = now_s
        elif more < 0 and self.is_growing:
            self.turned_s = now_s

    @property
    def is_growing(self) -> bool:
        """Says if load has stopped no replica since it started one."""
        return self.grown_s > self.turned_s

    def shift(self, by_s: float) -> None:
        """The clock was set by that many seconds: what is remembered keeps its age. This gap is not learned."""
        self._has_called = False
        self.asked_s = [at_s + by_s for at_s in self.asked_s]
        self.turned_s += by_s
        self.grown_s += by_s
        self.looked_s, self.active_s, self.waiting_s, self.started_s = (
            None if at_s is None else at_s + by_s
            for at_s in (self.looked_s, self.active_s, self.waiting_s, self.started_s)
        )

    def idle_s(self, now_s: float) -> float:
        """For how long no call has been seen, in seconds."""
        return now_s - self.active_s if self.active_s is not None else 0.0

    def price_s(self, terms: Terms) -> float:
        """Price of a cold hit in seconds of one idle replica: above `idle_s` by as much as a start takes longer."""
        return terms.idle_s * (1.0 if self.load_s is None else self.load_s / terms.load_s)

    def stay_s(self, terms: Terms) -> float:
        """For how long the engine stays warm after its last call, in seconds."""
        if self.active_s is None:
            return terms.idle_s
        question = self.active_s, self.price_s(terms), terms.idle_least_s, terms.idle_most_s
        if self._stay is None or self._stay[0] != question:
            learned_s = self.gaps.idle_s(*question)
            self._stay = question, terms.idle_s if learned_s is None else learned_s
        return self._stay[1]

    def lefts_s(self, terms: Terms, now_s: float) -> list[float]:
        """Seconds for which each starting replica will still start."""
        load_s = self.load_s or terms.load_s
        return [max(OVERDUE_FRACTION * load_s, load_s - (now_s - asked_s)) for asked_s in self.asked_s]

    def heir(self) -> Memory:
        """Memory of the next version of the same engine."""
        return Memory(deepcopy(self.gaps), self.service_s, self.load_s, ended=self.ended)

    def written(self) -> dict[str, Any]:
        """Part that outlives this process, for JSON."""
        return {"service_s": self.service_s, "load_s": self.load_s, "gaps": self.gaps.written()}

    @classmethod
    def read(cls, table: Mapping[str, Any]) -> Memory:
        """Reads what was `written`. Raises an Exception where it is something else."""
        service_s, load_s = (None if table[name] is None else float(table[name]) for name in ("service_s", "load_s"))
        if not all(0 < seconds < math.inf for seconds in (service_s, load_s) if seconds is not None):
            raise ValueError(f"{service_s} and {load_s} are no times that calls and starts take")
        return cls(Gaps.read(table["gaps"]), service_s, load_s, ended=RECENT)
