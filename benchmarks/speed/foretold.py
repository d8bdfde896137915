"""Predictions of the simulation for requests that a graph has answered, beside what the graph did.

`results/foretold.json` holds what graphs did with made traces, each scaled by the policy or by Serve's default. The
simulation gets of each request when it came, whose it was and how long the engine worked, as a ledger holds it, and how
long each start took. Waits, cold hits and replica-seconds are compared. The policy knows gaps of two traces before, as
it would on its third day.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from ray.serve.config import AutoscalingConfig

import configs
from autoscaling.deployment import deployment_options
from autoscaling.policy.options import Scaling, terms_of
from autoscaling.policy.scaling import ScalingPolicy
from benchmarks.capacity import made
from benchmarks.capacity.engine import Setup
from benchmarks.capacity.policies import Planned, ServeDefault, SimulatedPolicy
from benchmarks.capacity.run import simulate
from benchmarks.capacity.summary import summary
from benchmarks.capacity.traces import SimulatedTrace

STORED = Path(__file__).parent / "results/foretold.json"
MODEL, NAME = "smollm2-135m-instruct", "chat-smollm2-135m-instruct"
IDLE = {"idle_s": 30.0, "idle_least_s": 4.0, "idle_most_s": 60.0}
"""In its stanza: in ten minutes there is nothing to see of an idle time of five."""

OWNERS, WORK_S, BEFORE = 6, 1.5, (101, 102)
"""Of the traces; the seeds of those that the policy has seen before."""

SIMULATIONS = 40
Figures = npt.NDArray[np.float64]

GRACE_S = 30.0
SHAPES = ("burst", "day", "flood")


@dataclass
class Seen:
    """What a graph did with a trace: of each request when it came, whose it was and its seconds; and its replicas.

    A request that was refused has no wait, and the work that it was made with.
    """

    shape: str
    by: str
    minutes: float
    seed: int
    at_s: list[float]
    owner: list[int]
    work_s: list[float]
    wait_s: list[float | None]
    cold_hits: int
    running_s: float
    starts_s: list[float]

    @property
    def figures(self) -> tuple[float, float, float, float]:
        """p50 and p95 of waits, cold hits, and seconds for which replicas ran."""
        p50_s, p95_s = np.percentile([wait_s for wait_s in self.wait_s if wait_s is not None], [50, 95])
        return float(p50_s), float(p95_s), self.cold_hits, self.running_s


def setup(starts_s: Sequence[float] = ()) -> Setup:
    """The engine as its stanza has it, but for its idle times."""
    model = next(model for model in configs.load("embedded").deployed() if model.id == MODEL)
    serving = model.setup.model_copy(update=IDLE)
    options = deployment_options(model.model_copy(update={"serving": serving}), scaling=Scaling(by="serve"))
    config = AutoscalingConfig(**options["autoscaling_config"])
    return Setup(NAME, serving, config, terms_of(serving, options), starts_s=tuple(starts_s))


def learned(
    scaling: ScalingPolicy, setups: dict[str, Setup], minutes: float, requests: int, shape: str
) -> ScalingPolicy:
    for seed in BEFORE:
        trace = made.trace(shape, [NAME], requests, 60 * minutes, OWNERS, WORK_S, seed)
        simulate(trace, setups, Planned(setups, {}, scaling), grace_s=GRACE_S)
    return scaling


def foretell(seen: Seen) -> Figures:
    """The same figures, as SIMULATIONS have them, which differ in when Serve's controller looks; [simulation, figure].

    Whether an engine is idle for its idle time or called just before decides over ten seconds of waits, and whether a
    short call is seen depends on that moment. So there is a band, and what happens is one draw of it.
    """
    return np.array([_simulated(seen, seed) for seed in range(SIMULATIONS)])


def _simulated(seen: Seen, seed: int) -> tuple[float, float, float, float]:
    setups = {NAME: setup(seen.starts_s)}
    policy: SimulatedPolicy = ServeDefault(setups, {})
    if seen.by == "policy":
        scaling = ScalingPolicy({NAME: setups[NAME].terms})
        policy = Planned(setups, {}, learned(scaling, {NAME: setup()}, seen.minutes, len(seen.at_s), seen.shape))
    order = np.argsort(seen.at_s)
    trace = SimulatedTrace(
        (NAME,),
        np.array(seen.at_s)[order],
        np.zeros(len(order), np.int16),
        np.array(seen.owner, np.int32)[order],
        np.array(seen.work_s, np.float32)[order],
    )
    told = summary(trace, simulate(trace, setups, policy, grace_s=GRACE_S, seed=seed))
    starting_s = told.starts * float(np.mean(seen.starts_s))
    return told.p50_s, told.p95_s, told.cold_hits, 3600 * told.replica_hours - starting_s


def stored() -> list[Seen]:
    return [Seen(**run) for run in json.loads(STORED.read_text("utf-8"))]
