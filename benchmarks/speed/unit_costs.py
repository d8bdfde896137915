"""What grows with a cluster, one cost at a time: settles of a database, rates of a Redis, looks of Serve's controller.

    python -m benchmarks.speed.unit_costs --postgres postgresql://parlance@127.0.0.1/empty --redis redis://127.0.0.1/9
    python -m benchmarks.speed.unit_costs --keep       to results/unit_costs.json, of which `make docs` draws a plot

Each is measured alone and without a graph. A look is what the controller does with the reports that lie there: of each
handle, and in it of each replica; then the policy reads what replicas report, and decides. `docs/scaling-out.md` says
what follows.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import random
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ray.serve._private.autoscaling_state import DeploymentAutoscalingState
from ray.serve._private.common import (
    RUNNING_REQUESTS_KEY,
    DeploymentHandleSource,
    DeploymentID,
    HandleMetricReport,
    ReplicaID,
    TimeStampedValue,
)
from ray.serve.config import AutoscalingConfig

from autoscaling.policy import Facts, ScalingPolicy, Terms
from autoscaling.policy.reports import Reader
from benchmarks.servers import make_customer, working_folder
from state import open_state
from state.database.open import migrate
from state.keys import SECRET_VARIABLE

KEPT = Path(__file__).with_name("results") / "unit_costs.json"
AT_ONCE = 64
SIZES = ((1, 1), (1, 10), (10, 10), (10, 100), (100, 100), (100, 300), (300, 300))
"""Handles, which are ingress replicas, and replicas of one engine."""


async def _rate(work: Callable[[int], Awaitable[object]], count: int) -> tuple[float, float]:
    """How often a second `work` was done, by AT_ONCE at once, and this process's milliseconds for one."""
    numbers = iter(range(count))

    async def some() -> None:
        for number in numbers:
            await work(number)

    began_s, used_s = time.perf_counter(), time.process_time()
    await asyncio.gather(*(some() for _ in range(AT_ONCE)))
    return count / (time.perf_counter() - began_s), 1000 * (time.process_time() - used_s) / count


async def state_costs(
    database_url: str, redis_url: str | None, home: Path, count: int
) -> dict[str, tuple[float, float]]:
    """Settles and looks at rates, a second and in milliseconds of this process."""
    os.environ.setdefault(SECRET_VARIABLE, "00" * 32)
    await migrate(database_url)
    key = make_customer({"PARLANCE_HOME": str(home), "PARLANCE_DATABASE_URL": database_url})
    state = await open_state(home, database_url, redis_url)
    kind = database_url.partition(":")[0]
    try:
        caller = await state.accounts.authenticate(f"Bearer {key}")

        async def settle(number: int) -> None:
            hold = await state.ledger.reserve(
                caller, line="chat:x", model="x", estimate_micro_eur=40, request_id=f"req_{number}"
            )
            await hold.settle(30, 10, "tokens")

        costs = {f"settle, {kind}": await _rate(settle, count)}
        costs[f"rate, {'redis' if redis_url else 'in memory'}"] = await _rate(lambda _: state.rates.hit(caller), count)
    finally:
        await state.close()
    return costs


def look_ms(handles: int, replicas: int) -> float:
    """One look of the controller at one engine."""
    name = DeploymentID("engine", "parlance")
    state = DeploymentAutoscalingState(name)
    state._config = AutoscalingConfig(min_replicas=0, max_replicas=1000, metrics_interval_s=2, look_back_period_s=3)
    ids = [ReplicaID(str(number), name) for number in range(replicas)]
    state.update_running_replica_ids(ids)
    now_s = time.time()

    def points() -> list[TimeStampedValue]:
        return [TimeStampedValue(now_s - age_s, 1.0) for age_s in (2.0, 1.0, 0.0)]

    for number in range(handles):
        metrics = {RUNNING_REQUESTS_KEY: {replica.to_full_id_str(): points() for replica in ids}}
        state.record_request_metrics_for_handle(
            HandleMetricReport(name, str(number), str(number), DeploymentHandleSource.REPLICA, points(), metrics, now_s)
        )
    began_s = time.perf_counter()
    total = state.get_total_num_requests()
    assert total >= handles * replicas
    return 1000 * (time.perf_counter() - began_s)


def read_us(replicas: int) -> float:
    """What reading the reports of one replica takes the policy, in microseconds, where an engine has so many."""
    ids = [str(number) for number in range(replicas)]
    told = {name: {one: [TimeStampedValue(0.0, 1.0)] for one in ids} for name in ("ended", "worked_s", "load_s")}
    ctx: Any = SimpleNamespace(
        raw_metrics=told, current_num_replicas=replicas, target_num_replicas=replicas, total_num_requests=1.0
    )
    reader = Reader()
    reader.facts(ctx)
    began_s = time.perf_counter()
    reader.facts(ctx)
    return 1e6 * (time.perf_counter() - began_s) / replicas


def decide_us(engines: int, looks: int = 30) -> float:
    """What one engine takes of a decision for so many that share half the room they would like, in microseconds."""
    terms = {str(number): Terms(slots=4, most=4, needs={"GPU": 1.0}) for number in range(engines)}
    scaling, draw, targets, least_s = ScalingPolicy(terms), random.Random(1), dict.fromkeys(terms, 1), math.inf
    for look in range(looks):
        facts = {name: Facts(min(1, n), n, draw.choice([0, 0, 3, 9]), 2, 4.0) for name, n in targets.items()}
        began_s = time.perf_counter()
        decisions = scaling.decide(facts, {"GPU": max(1.0, engines / 2)}, 1.8e9 + 2 * look)
        least_s = min(least_s, time.perf_counter() - began_s)
        targets = {name: decision.replicas for name, decision in decisions.items()}
    return 1e6 * least_s / engines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--postgres", metavar="ADDRESS", help="an empty database, measured after SQLite")
    parser.add_argument("--redis", metavar="ADDRESS", help="a database of a Redis, measured with PostgreSQL")
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--keep", action="store_true", help="keep the costs, which the plot is drawn from")
    options = parser.parse_args()
    costs: dict[str, tuple[float, float]] = {}
    with working_folder("costs-") as home:
        costs |= asyncio.run(state_costs(f"sqlite:///{home / 'costs.db'}", None, home, options.requests))
        if options.postgres:
            costs |= asyncio.run(state_costs(options.postgres, options.redis, home, options.requests))
    looks = [
        (handles, replicas, round(min(look_ms(handles, replicas) for _ in range(3)), 3)) for handles, replicas in SIZES
    ]
    for name, (rate, ms) in costs.items():
        print(f"{name}: {rate:,.0f} a second, {ms:.2f} ms of this process")
    for handles, replicas, ms in looks:
        print(f"a look at {handles} handles of {replicas} replicas: {ms:.2f} ms")
    for count in (1, 10, 100, 1000):
        print(
            f"with {count}: {min(read_us(count) for _ in range(5)):.1f} us to read what a replica reports, "
            f"{decide_us(count):.0f} us to decide for an engine"
        )
    print(f"load average {os.getloadavg()[0]:.1f}")
    if options.keep:
        KEPT.write_text(json.dumps({"costs": costs, "looks": looks}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
