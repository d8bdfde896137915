"""The simulation as it is now foretells how graphs coped with made traces; what the short comparison calls slid.

`benchmarks/speed/results/foretold.json` has of each request when it came, its owner and how long the engine worked,
as a ledger holds it, and how long each start took. The policy knows gaps of two traces before, as it would on its third
day.
"""

import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
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
from benchmarks.speed.quick import BENCHMARKS, COMMITTED, KINDS, kind_of, text_of, verdict
from tests.docs.pages import ROOT

MODEL, NAME = "smollm2-135m-instruct", "chat-smollm2-135m-instruct"
IDLE = {"idle_s": 30.0, "idle_least_s": 4.0, "idle_most_s": 60.0}
"""In its stanza: in ten minutes there is nothing to see of an idle time of five."""

OWNERS, WORK_S, BEFORE = 6, 1.5, (101, 102)
"""Of the traces; the seeds of those that the policy has seen before."""
SIMULATIONS = 5
"""They differ in when Serve's controller looks, by which an idle engine is called in time or just too late."""
GRACE_S = 30.0
TOO_WIDE = "burst by serve"
"""Its p95 is anywhere between 6 and 12 s."""


@dataclass
class Run:
    """A trace on a graph. A request that was refused has no wait, and the work that it was made with."""

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


STORED = json.loads((ROOT / "benchmarks/speed/results/foretold.json").read_text("utf-8"))
RUNS = {f"{run.shape} by {run.by}": run for run in (Run(**fields) for fields in STORED)}


def setup(starts_s: Sequence[float] = ()) -> Setup:
    """The engine as its stanza has it, but for its idle times."""
    model = next(model for model in configs.load("embedded").deployed() if model.id == MODEL)
    serving = model.setup.model_copy(update=IDLE)
    options = deployment_options(model.model_copy(update={"serving": serving}), scaling=Scaling(by="serve"))
    config = AutoscalingConfig(**options["autoscaling_config"])
    return Setup(NAME, serving, config, terms_of(serving, options), starts_s=tuple(starts_s))


def policy_of(run: Run, setups: dict[str, Setup]) -> SimulatedPolicy:
    """Serve's default, or the policy once it has learned from traces of the same shape."""
    if run.by == "serve":
        return ServeDefault(setups, {})
    scaling, before = ScalingPolicy({NAME: setups[NAME].terms}), {NAME: setup()}
    for seed in BEFORE:
        trace = made.trace(run.shape, [NAME], len(run.at_s), 60 * run.minutes, OWNERS, WORK_S, seed)
        simulate(trace, before, Planned(before, {}, scaling), grace_s=GRACE_S)
    return Planned(setups, {}, scaling)


def simulated(run: Run, seed: int) -> tuple[float, float, float]:
    """p50 and p95 of waits, and seconds for which replicas ran."""
    setups = {NAME: setup(run.starts_s)}
    order = np.argsort(run.at_s)
    trace = SimulatedTrace(
        (NAME,),
        np.array(run.at_s)[order],
        np.zeros(len(order), np.int16),
        np.array(run.owner, np.int32)[order],
        np.array(run.work_s, np.float32)[order],
    )
    found = summary(trace, simulate(trace, setups, policy_of(run, setups), grace_s=GRACE_S, seed=seed))
    starting_s = found.starts * float(np.mean(run.starts_s))
    return found.p50_s, found.p95_s, 3600 * found.replica_hours - starting_s


@pytest.mark.parametrize("name", RUNS)
def test_a_simulation_foretells_what_a_graph_did(name: str) -> None:
    run = RUNS[name]
    p50_s, p95_s = np.percentile([wait_s for wait_s in run.wait_s if wait_s is not None], [50, 95])
    found_p50_s, found_p95_s, found_running_s = np.mean([simulated(run, seed) for seed in range(SIMULATIONS)], 0)
    assert found_running_s == pytest.approx(run.running_s, rel=0.15)
    assert found_p50_s == pytest.approx(p50_s, rel=0.15, abs=0.05)
    assert found_p95_s == pytest.approx(p95_s, rel=1.0 if name == TOO_WIDE else 0.15, abs=0.05)


def test_a_trace_of_each_shape_was_asked_under_both_policies() -> None:
    assert RUNS.keys() == {f"{shape} by {by}" for shape in ("burst", "day", "flood") for by in ("serve", "policy")}


RATE, FIRST = "16 clients, rate", "time to first token"
VERDICTS: dict[tuple[str, float, float | None], str] = {
    (RATE, 0.86, 1.0): "as before",
    (RATE, 0.84, 1.0): "**slid** by 16%",
    (RATE, 1.14, 1.0): "as before",
    (RATE, 1.16, 1.0): "better by 16%",
    (FIRST, 1.16, 1.0): "as before",
    (FIRST, 1.2, 1.0): "**slid** by 17%",
    (FIRST, 0.8, 1.0): "better by 25%",
    (FIRST, 0.8, None): "new",
}


def test_a_ratio_slides_in_the_direction_that_is_worse() -> None:
    assert {ratio: verdict(*ratio) for ratio in VERDICTS} == VERDICTS


def test_each_benchmark_has_committed_ratios_by_kind_of_processor() -> None:
    kinds = tomllib.loads(COMMITTED.read_text("utf-8"))
    assert {"AMX"} <= kinds.keys() <= KINDS.keys()
    assert all(list(committed) == list(BENCHMARKS) for committed in kinds.values())
    assert tomllib.loads(text_of(kinds)) == kinds
    features: list[tuple[str, dict[str, bool]]] = [
        ("AMX", {"avx2": True, "avx512_bf16": True, "amx_bf16": True}),
        ("AVX-512", {"avx2": True, "avx512_bf16": True, "amx_bf16": False}),
        ("AVX2", {"avx2": True, "avx512_f": True}),
        ("other", {"avx": True}),
    ]
    assert [kind_of(has) for _, has in features] == [kind for kind, _ in features]
