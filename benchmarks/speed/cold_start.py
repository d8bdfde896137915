"""From a request at zero replicas to its first answer: with the fork server, without it, and beside `vllm serve`.

    python -m benchmarks.speed.cold_start

A turn runs the graph with the fork server, then without it, then starts `vllm serve` once, from its process's start to
its first token. Each graph has every engine asked `rounds` times, at zero each time, and once three of them together.
All read their files from the page cache: first starts, which warm it, are not counted. One thing runs at a time.

A start has phases, by what Serve's controller writes about it:

    asked       from the client's request until the controller starts a replica
    process     until Ray's worker runs our code: Python, Ray, Serve
    loading     imports, weights, what an engine does before it can answer
    answer      until the client has the first of it
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from datetime import datetime
from pathlib import Path

import httpx
import yaml

from benchmarks import tables
from benchmarks.servers import ROOT, Server, parlance, working_folder
from benchmarks.speed.cold_requests import CAPABILITIES, First
from benchmarks.speed.peers import vllm, vllm_python

IDLE_S = 2
"""Until an engine is at zero. Short, so that a round does not take minutes."""
SETTLED_S = 5.0
"""After zero: the process that has ended must not share the cores with the one that starts."""
WITHIN_S = 120
TOGETHER = ("chat", "embeddings", "speech")

STARTING = re.compile(r"INFO (\S+ \S+) controller \d+ -- Starting Replica\(id='(\w+)', deployment='([\w.-]+)'")
STARTED = re.compile(
    r"Replica\(id='(\w+)'.* started successfully .* after ([\d.]+)s .* initial health check took ([\d.]+)s"
)

WITH, WITHOUT = "with the fork server", "without"


@dataclass(frozen=True, slots=True)
class Phases:
    wait: float
    process: float
    loading: float
    answer: float

    @property
    def total(self) -> float:
        return self.wait + self.process + self.loading + self.answer


def newest(session: Path, deployment: str, requested_at: float, total_s: float) -> Phases | None:
    """Of the last start of a deployment, as Ray's folder tells it; None before it does. `requested_at` is Unix time."""
    log = "".join(file.read_text() for file in sorted(session.glob("logs/serve/controller_*.log")))
    events = [(match[1], match[2]) for match in STARTING.finditer(log) if match[3] == deployment]
    at, replica = events[-1] if events else ("", "")
    started = next((match for match in STARTED.finditer(log) if match[1] == replica), None)
    if not started:
        return None
    wait = datetime.strptime(at, "%Y-%m-%d %H:%M:%S,%f").timestamp() - requested_at
    if wait < 0:
        return None
    until_ready, loading = float(started[2]), float(started[3])
    return Phases(wait, until_ready - loading, loading, max(0.0, total_s - wait - until_ready))


def median(starts: Sequence[Phases]) -> Phases:
    return Phases(*(statistics.median(values) for values in zip(*map(astuple, starts), strict=True)))


Starts = defaultdict[tuple[str, str], list[Phases]]
"""By engine and way."""


@contextmanager
def graph(folder: Path, way: str) -> Iterator[tuple[Server, Path]]:
    """The graph, and Ray's folder of it."""
    config = yaml.safe_load((ROOT / "configs/embedded.yaml").read_text("utf-8"))
    config["applications"][0]["args"]["fork_server"] = way == WITH
    file = folder / "graph.yaml"
    file.write_text(yaml.safe_dump(config))
    with parlance(folder, file, PARLANCE_IDLE_S=str(IDLE_S)) as server:
        yield server, Path(server.home, "ray/session_latest").resolve()


def graph_turn(folder: Path, way: str, engines: Sequence[str], rounds: int, starts: Starts) -> list[float]:
    """Adds the starts of each engine, each from zero; returns the slowest first answer of three asked together."""
    with graph(folder, way) as (server, session):
        warm_up(server, session, way)
        for engine in engines:
            for count in range(rounds + 1):  # the first has its files read
                phases = start(server, session, CAPABILITIES[engine])
                print(f"{engine}, {way}: {phases.total:.2f} s", file=sys.stderr, flush=True)
                if count:
                    starts[engine, way].append(phases)
        if not set(TOGETHER) <= set(engines):
            return []
        return [together(server)]


def warm_up(server: Server, session: Path, way: str) -> None:
    """The first start of a graph leaves the fork server behind, and is as slow as one without."""
    CAPABILITIES["chat"].answered_s(server)
    if way == WITH:
        logs = session / "logs"
        wait(
            lambda: any(" ready" in log.read_text() for log in logs.glob("fork_server_*.log")),
            "there is no fork server",
        )


def start(server: Server, session: Path, request: First) -> Phases:
    await_zero(server, request.deployment)
    at = time.time()
    total_s = request.answered_s(server)
    wait(lambda: newest(session, request.deployment, at, total_s), "the controller does not tell of the start")
    phases = newest(session, request.deployment, at, total_s)
    assert phases
    return phases


def together(server: Server) -> float:
    """Seconds until the last of three engines has answered that were asked at once."""
    requests = [CAPABILITIES[name] for name in TOGETHER]
    for request in requests:
        await_zero(server, request.deployment)
    with ThreadPoolExecutor(len(requests)) as pool:
        return max(pool.map(First.answered_s, requests, [server] * len(requests)))


def replicas(server: Server) -> dict[str, int]:
    replicas: dict[str, int] = httpx.get(f"{server.url}/healthz", headers=server.headers).json()["replicas"]
    return replicas


def await_zero(server: Server, deployment: str) -> None:
    """Waits until an engine has no replica, and its process is gone."""
    wait(lambda: not replicas(server)[deployment], f"{deployment} does not go to zero")
    time.sleep(SETTLED_S)


def wait(condition: Callable[[], object], why: str) -> None:
    """Until `condition()` holds. Raises SystemExit."""
    end_s = time.monotonic() + WITHIN_S
    while not condition():
        if time.monotonic() > end_s:
            raise SystemExit(f"{why} within {WITHIN_S} s")
        time.sleep(0.2)


def vllm_turn(folder: Path) -> float:
    """The first token of `vllm serve`, from the start of its process."""
    with tempfile.TemporaryDirectory(dir=folder) as environment:
        python = vllm_python(Path(environment))
        started_s = time.perf_counter()
        with vllm(python, folder) as server:
            CAPABILITIES["chat"].answered_s(server)
            return time.perf_counter() - started_s


def table(starts: Mapping[tuple[str, str], list[Phases]], peer: Sequence[float]) -> str:
    """Markdown: seconds of each engine and way, and of the phases of their median."""
    rows: list[tuple[str, ...]] = []
    for (engine, way), samples in starts.items():
        parts = (f"{seconds:.2f}" for seconds in astuple(median(samples)))
        rows.append((f"{engine}, {way}", *_totals([phases.total for phases in samples]), *parts))
    if peer:
        rows.append(("vllm serve, from its start", *_totals(peer), *[""] * 4))
        if ours := starts.get(("chat", WITH)):
            ratio = statistics.median(phases.total for phases in ours) / statistics.median(peer)
            rows.append(("**chat beside it**", f"**{ratio:.2f}**", *[""] * 5))
    return tables.table(" | first answer s: median | all | asked | process | loading | answer", rows)


def _totals(seconds: Sequence[float]) -> tuple[str, str]:
    """Median, and all."""
    return f"{statistics.median(seconds):.1f}", ", ".join(f"{value:.1f}" for value in seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=2, help="of each way")
    parser.add_argument("--rounds", type=int, default=3, help="of each engine in each turn")
    parser.add_argument("--engines", nargs="+", choices=CAPABILITIES, default=list(CAPABILITIES), metavar="ENGINE")
    parser.add_argument("--alone", action="store_true", help="without `vllm serve`")
    options = parser.parse_args()
    starts: Starts = defaultdict(list)
    at_once: defaultdict[str, list[float]] = defaultdict(list)
    peer: list[float] = []
    with working_folder("cold-") as folder:
        for _ in range(options.turns):
            for way in (WITH, WITHOUT):
                at_once[way] += graph_turn(folder, way, options.engines, options.rounds, starts)
            if not options.alone:
                peer.append(vllm_turn(folder))
                print(f"vllm serve: {peer[-1]:.1f} s", file=sys.stderr, flush=True)
    print(table(starts, peer))
    for way, seconds in at_once.items():
        if seconds:
            print(f"\n{', '.join(TOGETHER)} requested at once, {way}: the last answered after {_totals(seconds)[1]} s")
    print(f"\nload average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
