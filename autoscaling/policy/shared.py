"""State that the policies of all deployments of a cluster share, in the process of Serve's controller.

Serve starts the first replica of a cold engine that is called without asking its policy. So a cold engine that was
not asked in a round of looks is one that a call waits for. Its replica waits, too, until there is room for it. One
that was not cold and is not asked is being deleted: it holds what it has, and wants no more.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from autoscaling.policy.facts import Facts, ScalingDecision, Terms
from autoscaling.policy.memory import Memory
from autoscaling.policy.scaling import ScalingPolicy
from contract.telemetry import SCALING_FAILURES, SCALING_REPLICAS

if TYPE_CHECKING:
    from ray.serve.config import AutoscalingContext

    from autoscaling.metrics import Send
    from autoscaling.policy.reports import Reader

CAPACITY_S = 10.0
"""Age in seconds up to which the known resources of the cluster are used."""

SAVE_S = 300.0
FILE = "warmth.json"
"""In PARLANCE_HOME of the machine with Serve's controller: what was learned, to go on from after a restart."""

COLD_REQUEST = Facts(running=0, target=1, calls=1.0)

log = logging.getLogger("ray.serve")


def cluster_resources() -> Mapping[str, float]:
    """Resources in all, by Ray's names. Memory is in bytes."""
    import ray

    return dict(ray.cluster_resources())


def engine_of(key: str) -> str:
    """The engine of a key in all versions of its graph: `launch upgrade` numbers their applications from 2 on."""
    return re.sub(r"^([^/]+)-(?!1/)\d+/", r"\1/", key)


class SharedPolicy:
    """All engines of all applications of a cluster.

    Args:
        resources: total of each.
        file: file of the learned values; None: they are not kept.
        clock: seconds that never go back.
    """

    def __init__(
        self,
        resources: Callable[[], Mapping[str, float]] = cluster_resources,
        file: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._resources, self._file, self._clock = resources, file, clock
        self._policy = ScalingPolicy()
        self._members: WeakValueDictionary[str, Reader] = WeakValueDictionary()
        """Serve lets go of the policy of a deployment that is deleted, and so of its reader."""
        self._looks: dict[str, Facts] = {}
        """Of this round."""
        self._seen: dict[str, Facts] = {}
        """The last of each, without what has ended."""
        self._decided: dict[str, Facts] = {}
        """Looks of the round before."""
        self._decisions: dict[str, ScalingDecision] = {}
        """Made of these."""
        self._failures: Mapping[str, Exception] = {}
        """Of the last round, by the engines that they concern."""
        self._there_is: Mapping[str, float] = {}
        self._asked_s = -CAPACITY_S
        self._saved_s = clock()
        self._read()

    def decide(self, reader: Reader, ctx: AutoscalingContext) -> ScalingDecision:
        """Decides from the looks of the round before; this look is for the next. Raises what deciding has raised."""
        key = f"{ctx.app_name}/{ctx.deployment_name}"
        if key in self._looks:
            self._end_round(ctx.current_time or time.time())
        known = self._members.pop(key, None)  # one that cannot be read has no caller that waits
        self._looks[key] = look = reader.facts(ctx)
        self._seen[key] = Facts(look.running, look.target, look.calls)
        if known is not reader:
            self._policy.terms[key] = Terms.read(reader.terms)
            self._inherit(key)
        self._members[key] = reader
        if failure := self._failures.get(key):
            raise failure
        # A decision from before Serve started the first replica would stop it.
        has_started = look.running and not self._decided.get(key, COLD_REQUEST).running
        first = ScalingDecision(ctx.target_num_replicas, "first look")
        decision = first if has_started else self._decisions.get(key, first)
        self._instruments(SCALING_REPLICAS, (ctx.deployment_name,), decision.replicas)
        return decision

    def count_failure(self, engine: str) -> None:
        """A policy has failed, and Serve's default decides."""
        self._instruments(SCALING_FAILURES, (engine,), 1)

    @cached_property
    def _instruments(self) -> Send:
        from autoscaling.exporter import RayInstruments

        return RayInstruments([SCALING_REPLICAS, SCALING_FAILURES])

    def _end_round(self, now_s: float) -> None:
        self._decided, self._looks = self._looks, {}
        members = dict(self._members)
        facts = {key: self._decided.get(key) or self._unasked(key) for key in members}
        try:
            self._decisions = self._policy.decide(facts, self._capacity_of(members, facts), now_s)
            self._failures = self._policy.failures
        except Exception as error:
            self._failures = dict.fromkeys(members, error)
        if self._clock() - self._saved_s >= SAVE_S:
            self._saved_s = self._clock()
            self._write()

    def _unasked(self, key: str) -> Facts:
        seen = self._seen.get(key, COLD_REQUEST)
        return seen if seen.running else COLD_REQUEST

    def _capacity_of(self, members: Mapping[str, Reader], facts: Mapping[str, Facts]) -> dict[str, float]:
        """Capacity that engines share. Running replicas count, also on a node that has just joined."""
        runs: Counter[str] = Counter()
        for key, seen in facts.items():
            runs.update({name: need * seen.running for name, need in self._policy.terms[key].needs.items()})
        if runs and self._clock() - self._asked_s >= CAPACITY_S:
            self._asked_s, self._there_is = self._clock(), self._resources()
        capacity = {name: max(taken, self._there_is.get(name, 0.0)) for name, taken in runs.items()}
        budgets = [limit for reader in members.values() for limit in reader.budget.items()]
        return capacity | {name: least for name, least in sorted(budgets, reverse=True) if name in capacity}

    def _inherit(self, key: str) -> None:
        """A new version of an engine continues from what the one before has learned."""
        memories = self._policy.memories
        before = [memory for name, memory in memories.items() if engine_of(name) == engine_of(key)]
        if before and key not in memories:
            memories[key] = before[-1].heir()

    def _read(self) -> None:
        if self._file is None or not self._file.exists():
            return
        try:
            for key, table in json.loads(self._file.read_text("utf-8")).items():
                self._policy.memories[engine_of(key)] = Memory.read(table)
        except Exception as error:
            log.warning("scaling: %s cannot be read, so idle times start from their defaults: %r", self._file, error)

    def _write(self) -> None:
        if self._file is None:
            return
        replaced = {engine_of(key) for key in self._members}
        for key in [key for key in self._policy.memories if key not in self._members and engine_of(key) in replaced]:
            del self._policy.memories[key]
        try:
            new = self._file.with_suffix(".new")
            learned = {engine_of(key): memory.written() for key, memory in self._policy.memories.items()}
            new.write_text(json.dumps(learned), "utf-8")
            new.replace(self._file)
        except OSError as error:
            log.warning("scaling: what was learned cannot be kept in %s: %r", self._file, error)


SHARED = SharedPolicy(file=Path(os.environ["PARLANCE_HOME"]) / FILE if "PARLANCE_HOME" in os.environ else None)
"""Of this process."""
