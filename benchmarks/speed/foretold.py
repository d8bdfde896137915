"""Whether a simulation foretells what a graph does: the same requests through both, by the same policy.

    python -m benchmarks.speed.foretold                       burst, day and flood, ten minutes each
    python -m benchmarks.speed.foretold burst --minutes 3     one of them, shorter
    python -m benchmarks.speed.foretold --by serve            scaled by Serve's default
    python -m benchmarks.speed.foretold --again               foretells anew what is stored, and asks no graph

A made trace is asked of a chat engine of the whole graph, each request at its moment. What the graph tells of each is
what the simulation is given, as a ledger would hold it: when it came, whose it was, and how long the engine worked.
Beside it stands how long each start took, as Serve's controller logs it. Waits, cold hits and replica-seconds are not
given: they are what is compared. The policy knows gaps of two traces before, as it would on its third day.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import httpx
import numpy as np
import numpy.typing as npt
from ray.serve.config import AutoscalingConfig

import configs
from autoscaling.deployment import deployment_options
from autoscaling.policy.brain import Brain
from autoscaling.policy.options import Scaling, terms_of
from autoscaling.simulation import made
from autoscaling.simulation.engine import Setup
from autoscaling.simulation.policies import Planned, ServeDefault, SimulatedPolicy
from autoscaling.simulation.run import simulate
from autoscaling.simulation.summary import summary
from autoscaling.simulation.traces import SimulatedTrace
from benchmarks.servers import ROOT, Server, parlance, working_folder
from benchmarks.speed.fairness import flood_key

STORED = Path(__file__).parent / "results/foretold.json"
APPLICATION, MODEL, NAME = "parlance", "smollm2-135m-instruct", "chat-smollm2-135m-instruct"
IDLE = {"idle_s": 30.0, "idle_least_s": 4.0, "idle_most_s": 60.0}
"""In its stanza: in ten minutes there is nothing to see of an idle time of five."""

OWNERS, WORK_S, BEFORE = 6, 1.5, (101, 102)
"""Of the traces; the seeds of those that the policy has seen before."""

SIMULATIONS = 40
Figures = npt.NDArray[np.float64]

TOKEN_S = 0.02
"""Of a stream beside others, about: what turns work into tokens."""
LOOK_S = 0.25
GRACE_S = 30.0
SHAPES = ("burst", "day", "flood")
_PART = re.compile(r"(\w+);dur=([\d.]+)")
_START = re.compile(rf"deployment='{NAME}'.* started successfully .* after ([\d.]+)s")
LOGS = Path("/tmp/ray/session_latest/logs/serve")  # where Ray links what runs


@dataclass
class Seen:
    """What a graph did with a trace: of each request when it came, whose it was and its seconds; and its replicas.

    A request that was refused has no wait, and the work that it was made with.
    """

    shape: str
    by: str
    minutes: float
    seed: int
    at_s: list[float] = field(default_factory=list)
    owner: list[int] = field(default_factory=list)
    work_s: list[float] = field(default_factory=list)
    wait_s: list[float | None] = field(default_factory=list)
    cold_hits: int = 0
    running_s: float = 0.0
    starts_s: list[float] = field(default_factory=list)

    async def watch(self, http: httpx.AsyncClient) -> None:
        """Counts seconds of replicas until it is cancelled."""
        before, at_s = 0, time.monotonic()
        while True:
            running = (await http.get("/healthz")).json()["replicas"][NAME]
            now_s = time.monotonic()
            self.running_s += (now_s - at_s) * before
            before, at_s = running, now_s
            await asyncio.sleep(LOOK_S)

    def add(self, at_s: float, owner: int, work_s: float, reply: httpx.Response) -> None:
        """What became of one request."""
        parts = {name: float(ms) / 1000 for name, ms in _PART.findall(reply.headers.get("server-timing", ""))}
        is_answered = reply.status_code == 200
        self.at_s.append(round(at_s, 3))
        self.owner.append(owner)
        self.work_s.append(round(parts["engine"] if is_answered else work_s, 3))
        self.wait_s.append(round(parts.get("queue", 0.0) + parts.get("load", 0.0), 3) if is_answered else None)
        self.cold_hits += bool(parts.get("load"))

    @property
    def figures(self) -> tuple[float, float, float, float]:
        """p50 and p95 of waits, cold hits, and seconds for which replicas ran."""
        p50_s, p95_s = np.percentile([wait_s for wait_s in self.wait_s if wait_s is not None], [50, 95])
        return float(p50_s), float(p95_s), self.cold_hits, self.running_s


async def ask_all(server: Server, flood: str, trace: SimulatedTrace, seen: Seen) -> None:
    """Sends each request at its moment."""
    keys = {made.FLOODER: flood}
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=server.url, timeout=600, limits=limits) as http:
        watching = asyncio.create_task(seen.watch(http))
        begin_s = time.monotonic()

        async def ask(owner: int, work_s: float) -> None:
            body = {
                "model": MODEL,
                "messages": [{"role": "user", "content": "Tell me a story about a lighthouse and its keeper."}],
                "max_tokens": max(1, min(400, round(work_s / TOKEN_S))),
            }
            headers = {"Authorization": f"Bearer {keys.get(owner, server.key)}"}
            sent_s = time.monotonic() - begin_s
            seen.add(sent_s, owner, work_s, await http.post("/v1/chat/completions", json=body, headers=headers))

        async with asyncio.TaskGroup() as group:
            for at_s, owner, work_s in zip(trace.at_s, trace.owner, trace.work_s, strict=True):
                await asyncio.sleep(max(0.0, begin_s + at_s - time.monotonic()))
                group.create_task(ask(int(owner), float(work_s)))
        await asyncio.sleep(GRACE_S)
        watching.cancel()


def setup(starts_s: Sequence[float] = ()) -> Setup:
    """The engine as its stanza has it, but for its idle times."""
    model = next(model for model in configs.load("embedded").deployed() if model.id == MODEL)
    assert model.serving is not None
    serving = model.serving.model_copy(update=IDLE)
    options = deployment_options(model.model_copy(update={"serving": serving}), scaling=Scaling(by="serve"))
    config = AutoscalingConfig(**options["autoscaling_config"])
    return Setup(NAME, serving, config, terms_of(serving, options), starts_s=tuple(starts_s))


def learned(brain: Brain, setups: dict[str, Setup], minutes: float, requests: int, shape: str) -> Brain:
    """`brain`, which has scaled such traces before."""
    for seed in BEFORE:
        trace = made.trace(shape, [NAME], requests, 60 * minutes, OWNERS, WORK_S, seed)
        simulate(trace, setups, Planned(setups, {}, brain), grace_s=GRACE_S)
    return brain


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
        brain = Brain({NAME: setups[NAME].terms})
        policy = Planned(setups, {}, learned(brain, {NAME: setup()}, seen.minutes, len(seen.at_s), seen.shape))
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


def idling(folder: Path) -> None:
    """A checkout like this one in whose catalogue the engine has the idle times of IDLE."""
    for path in ROOT.iterdir():
        if path.name not in ("configs", "var") and not path.name.startswith("."):
            (folder / path.name).symlink_to(path)

    shutil.copytree(ROOT / "configs", folder / "configs")
    catalogue = folder / "configs/catalog/chat.toml"
    stanza = f"[{MODEL}.serving.embedded]\n"
    lines = "".join(f"{name} = {value:g}\n" for name, value in IDLE.items())
    catalogue.write_text(catalogue.read_text("utf-8").replace(stanza, stanza + lines), "utf-8")


def run(shape: str, minutes: float, requests: int, by: str, seed: int) -> Seen:
    """One trace through a graph of its own."""
    seen = Seen(shape, by, minutes, seed)
    trace = made.trace(shape, [NAME], requests, 60 * minutes, OWNERS, WORK_S, seed)
    text = (ROOT / "configs/embedded.yaml").read_text("utf-8")
    with working_folder("foretold-") as folder:
        checkout = folder / "checkout"
        checkout.mkdir()
        idling(checkout)
        config = folder / "scaled.yaml"
        scaling = f"      fork_server: true\n      scaling: {{by: {by}}}\n"
        config.write_text(text.replace("      fork_server: true\n", scaling), "utf-8")
        with parlance(folder, config, checkout=checkout, warmth=_written(shape, minutes, requests)) as server:
            flood = flood_key(next(folder.glob("home-*")))
            asyncio.run(ask_all(server, flood, trace, seen))
            logs = "\n".join(log.read_text("utf-8") for log in LOGS.glob("controller_*.log"))
    seen.starts_s = [float(seconds) for seconds in _START.findall(logs)]
    return seen


def _written(shape: str, minutes: float, requests: int) -> str:
    """What the policy has learned before, as it keeps it."""
    setups = {NAME: setup()}
    brain = learned(Brain({NAME: setups[NAME].terms}), setups, minutes, requests, shape)
    return json.dumps({f"{APPLICATION}/{NAME}": brain.memories[NAME].written()})


def table(runs: Sequence[Seen]) -> str:
    """Markdown."""
    lines = [
        "| trace | by | requests, refused | p50 wait, s: real, foretold (5 % to 95 %) | p95 wait, s | cold hits "
        "| replica-seconds | starts, s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for seen in runs:
        told = foretell(seen)
        bands = zip(seen.figures, told.mean(0), *np.percentile(told, [5, 95], 0), strict=True)
        cells = [f"{real:.4g}, {mean:.4g} ({low:.4g} to {high:.4g})" for real, mean, low, high in bands]
        starts = f"{len(seen.starts_s)}: {min(seen.starts_s):.1f} to {max(seen.starts_s):.1f}"
        first = f"{seen.shape} | {seen.by} | {len(seen.at_s)}, {seen.wait_s.count(None)}"
        lines.append(f"| {first} | {' | '.join(cells)} | {starts} |")
    return "\n".join(lines)


def stored(file: Path = STORED) -> list[Seen]:
    """What graphs did."""
    return [Seen(**run) for run in json.loads(file.read_text("utf-8"))] if file.exists() else []


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="*", metavar="shape", help=f"{', '.join(SHAPES)} (default: all)")
    parser.add_argument("--minutes", type=float, default=10.0, help="of each trace (default: 10)")
    parser.add_argument("--requests", type=int, default=240, help="of each trace (default: 240)")
    parser.add_argument("--by", default="policy", choices=("policy", "serve"), help="who scales (default: policy)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--again", action="store_true", help="foretell what is stored, and run nothing")
    options = parser.parse_args()
    runs = stored()
    for shape in () if options.again else options.shapes or SHAPES:
        seen = run(shape, options.minutes, options.requests, options.by, options.seed)
        runs = [other for other in runs if (other.shape, other.by) != (seen.shape, seen.by)] + [seen]
        STORED.write_text("[\n" + ",\n".join(json.dumps(asdict(each)) for each in runs) + "\n]\n", "utf-8")
    print(table(runs))


if __name__ == "__main__":
    main()
