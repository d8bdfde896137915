"""Whether a simulation foretells what a graph does: the same requests through both, by the same policy.

    python -m benchmarks.speed.foretold                       burst, day and flood, ten minutes each
    python -m benchmarks.speed.foretold burst --minutes 3     one of them, shorter
    python -m benchmarks.speed.foretold --by serve            scaled by Serve's default

A made trace is asked of a chat engine of the whole graph, each request at its moment. What the graph tells of each is
what the simulation is given, as a ledger would hold it: when it came, whose it was, and how long the engine worked.
Beside it stands how long a start took. Waits and replica-seconds are not given: they are what is compared.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import httpx
import numpy as np
from ray.serve.config import AutoscalingConfig

import configs
from autoscaling.deployment import deployment_options
from autoscaling.policy.options import Scaling, terms_of
from autoscaling.simulation import made
from autoscaling.simulation.engine import Setup
from autoscaling.simulation.policies import POLICIES
from autoscaling.simulation.run import simulate
from autoscaling.simulation.summary import summary
from autoscaling.simulation.traces import SimulatedTrace
from benchmarks.servers import ROOT, Server, parlance, working_folder
from benchmarks.speed.fairness import flood_key

MODEL, IDLE_S = "smollm2-135m-instruct", 20.0
TOKEN_S = 0.02
"""Of a stream beside others, about: what turns work into tokens."""
LOOK_S = 0.25
GRACE_S = 30.0
POLICY = {"policy": "parlance", "serve": "serve"}
SHAPES = ("burst", "day", "flood")
_PART = re.compile(r"(\w+);dur=([\d.]+)")


@dataclass
class Answers:
    """What came of the requests of one trace: when each was sent, and the seconds that its parts took."""

    at_s: list[float] = field(default_factory=list)
    owner: list[int] = field(default_factory=list)
    wait_s: list[float] = field(default_factory=list)
    work_s: list[float] = field(default_factory=list)
    refused: int = 0


@dataclass
class Replicas:
    """Seconds that replicas ran, and how often and for how long one started, as far as looks from outside tell."""

    running_s: float = 0.0
    starts: int = 0

    async def watch(self, http: httpx.AsyncClient, deployment: str) -> None:
        """Looks until it is cancelled."""
        before, at_s = 0, time.monotonic()
        while True:
            running = (await http.get("/healthz")).json()["replicas"][deployment]
            now_s = time.monotonic()
            self.running_s += (now_s - at_s) * before
            self.starts += max(0, running - before)
            before, at_s = running, now_s
            await asyncio.sleep(LOOK_S)


@dataclass(frozen=True)
class Row:
    """One trace: what the graph did, and what was foretold."""

    shape: str
    requests: int
    real: tuple[float, float, float]
    foretold: tuple[float, float, float]
    refused: int


async def ask_all(server: Server, flood: str, trace: SimulatedTrace) -> tuple[Answers, Replicas, float]:
    """Sends each request at its moment. Gives answers, what replicas did, and how long starts took."""
    answers, replicas, keys = Answers(), Replicas(), {made.FLOODER: flood}
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=server.url, timeout=600, limits=limits) as http:
        watching = asyncio.create_task(replicas.watch(http, f"chat-{MODEL}"))
        begin_s, loads_s = time.monotonic(), [0.0]

        async def ask(at_s: float, owner: int, work_s: float) -> None:
            body = {
                "model": MODEL,
                "messages": [{"role": "user", "content": "Tell me a story about a lighthouse and its keeper."}],
                "max_tokens": max(1, min(400, round(work_s / TOKEN_S))),
            }
            headers = {"Authorization": f"Bearer {keys.get(owner, server.key)}"}
            sent_s = time.monotonic() - begin_s
            reply = await http.post("/v1/chat/completions", json=body, headers=headers)
            if reply.status_code != 200:
                answers.refused += 1
                return
            parts = {name: float(ms) / 1000 for name, ms in _PART.findall(reply.headers["server-timing"])}
            loads_s.append(parts.get("load", 0.0))
            answers.at_s.append(sent_s)
            answers.owner.append(owner)
            answers.wait_s.append(parts.get("queue", 0.0) + parts.get("load", 0.0))
            answers.work_s.append(parts["engine"])

        async with asyncio.TaskGroup() as group:
            for at_s, owner, work_s in zip(trace.at_s, trace.owner, trace.work_s, strict=True):
                await asyncio.sleep(max(0.0, begin_s + at_s - time.monotonic()))
                group.create_task(ask(float(at_s), int(owner), float(work_s)))
        await asyncio.sleep(GRACE_S)
        watching.cancel()
    return answers, replicas, max(loads_s)


def foretell(answers: Answers, load_s: float, by: str) -> tuple[float, float, float]:
    """p50 and p95 of waits, and seconds that replicas run, as a simulation has them."""
    model = next(model for model in configs.load("embedded").deployed() if model.id == MODEL)
    assert model.serving is not None
    serving = model.serving.model_copy(update={"load_s": load_s, "idle_s": IDLE_S, "idle_most_s": IDLE_S})
    options = deployment_options(model.model_copy(update={"serving": serving}), scaling=Scaling(by="serve"))
    config = AutoscalingConfig(**options["autoscaling_config"])
    setups = {model.deployment: Setup(model.deployment, serving, config, terms_of(serving, options, is_constant=True))}
    order = np.argsort(answers.at_s)
    trace = SimulatedTrace(
        (model.deployment,),
        np.array(answers.at_s)[order],
        np.zeros(len(order), np.int16),
        np.array(answers.owner, np.int32)[order],
        np.array(answers.work_s, np.float32)[order],
    )
    told = summary(trace, simulate(trace, setups, POLICIES[POLICY[by]](setups, {}), grace_s=GRACE_S))
    return told.p50_s, told.p95_s, 3600 * told.replica_hours - told.starts * load_s


def run(shape: str, minutes: float, requests: int, by: str, seed: int) -> Row:
    """One trace through a graph of its own, and through a simulation."""
    trace = made.trace(shape, [MODEL], requests, 60 * minutes, 6, 1.5, seed)
    text = (ROOT / "configs/embedded.yaml").read_text("utf-8")
    with working_folder("foretold-") as folder:
        config = folder / "scaled.yaml"
        scaling = f"      fork_server: true\n      scaling: {{by: {by}}}\n"
        config.write_text(text.replace("      fork_server: true\n", scaling), "utf-8")
        with parlance(folder, config, PARLANCE_IDLE_S=str(IDLE_S)) as server:
            flood = flood_key(next(folder.glob("home-*")))
            answers, replicas, load_s = asyncio.run(ask_all(server, flood, trace))
    p50_s, p95_s = (float(value) for value in np.percentile(answers.wait_s, [50, 95]))
    real = (p50_s, p95_s, replicas.running_s)
    print(
        f"{shape}: a start took {load_s:.1f} s, work was {statistics.mean(answers.work_s):.2f} s, {replicas}",
        flush=True,
    )
    return Row(shape, len(trace), real, foretell(answers, load_s, by), answers.refused)


def table(rows: Sequence[Row]) -> str:
    """Markdown."""
    lines = [
        "| trace | requests | refused | p50 wait, s: real, foretold | p95 | replica-seconds |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = (f"{real:.2f}, {told:.2f}" for real, told in zip(row.real, row.foretold, strict=True))
        lines.append(f"| {row.shape} | {row.requests} | {row.refused} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="*", default=SHAPES, choices=SHAPES, help="traces (default: all)")
    parser.add_argument("--minutes", type=float, default=10.0, help="of each trace (default: 10)")
    parser.add_argument("--requests", type=int, default=240, help="of each trace (default: 240)")
    parser.add_argument("--by", default="policy", choices=POLICY, help="who scales (default: policy)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(table([run(shape, options.minutes, options.requests, options.by, options.seed) for shape in options.shapes]))


if __name__ == "__main__":
    main()
