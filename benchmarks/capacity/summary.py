"""Summary of a simulation: waits, refusals, cold hits, replica-hours and money."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from benchmarks.capacity.engine import SimulatedOutcome
from benchmarks.capacity.run import EngineResult, Result
from benchmarks.capacity.traces import SimulatedTrace


@dataclass(frozen=True)
class Summary:
    """One run.

    Attributes:
        requests: number of requests; each is answered, refused (`busy`, `warming_up`, `late`) or `open` at the end.
        cold_hits: requests that came while no replica ran.
        p50_s, p95_s, p99_s: waits of those that were answered.
        others_p95_s: the same of all organisations but the one that asks most.
        waits_s: percentiles 0 to 100 of the same.
    """

    policy: str
    requests: int
    answered: int
    busy: int
    warming_up: int
    late: int
    open: int
    cold_hits: int
    p50_s: float
    p95_s: float
    p99_s: float
    others_p95_s: float
    starts: int
    replica_hours: float
    cost_eur: float
    waits_s: list[float] = field(repr=False)
    engines: list[EngineResult] = field(repr=False)


def summary(trace: SimulatedTrace, result: Result) -> Summary:
    """The figures of `result`, which came of `trace`."""
    counts = np.bincount(result.outcome, minlength=len(SimulatedOutcome))
    is_answered = result.outcome == SimulatedOutcome.ANSWERED
    waits_s = result.wait_s[is_answered]
    owners = np.bincount(trace.owner) if len(trace) else np.zeros(1)
    others_s = result.wait_s[is_answered & (trace.owner != owners.argmax())]
    shares = _quantiles(waits_s, range(101))
    return Summary(
        policy=result.policy,
        requests=len(trace),
        answered=int(counts[SimulatedOutcome.ANSWERED]),
        busy=int(counts[SimulatedOutcome.BUSY]),
        warming_up=int(counts[SimulatedOutcome.WARMING_UP]),
        late=int(counts[SimulatedOutcome.UPSTREAM_TIMEOUT]),
        open=int(counts[SimulatedOutcome.OPEN]),
        cold_hits=sum(engine.cold_hits for engine in result.engines),
        p50_s=shares[50],
        p95_s=shares[95],
        p99_s=shares[99],
        others_p95_s=_quantiles(others_s, [95])[0],
        starts=sum(engine.starts for engine in result.engines),
        replica_hours=sum(engine.replica_s for engine in result.engines) / 3600,
        cost_eur=sum(engine.cost_micro_eur for engine in result.engines) / 1e6,
        waits_s=shares,
        engines=result.engines,
    )


def _quantiles(values: npt.NDArray[np.float32], shares: Sequence[int]) -> list[float]:
    return [float(value) for value in np.percentile(values, shares)] if len(values) else [0.0] * len(shares)
