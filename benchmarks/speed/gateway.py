"""What the ingress adds to a call: requests per second and latency beside less and beside peers, in turns in one run.

    python -m benchmarks.speed.gateway
    python -m benchmarks.speed.gateway --peers router litellm      beside these only; none without a name

Everything answers with the same instant engine (`benchmarks.speed.instant`): a bare ASGI app under uvicorn; two bare
hops of Ray Serve behind HAProxy; this project with every check on (key, scope, rate, body, a spend limit that is
reserved and settled in SQLite, one usage line a request); and the peers, each where `make bench` has made its
environment. Clients are a process of their own (`benchmarks.speed.load`). Streams are 50 events without a pause. All
run the whole time and are measured in turns. The last column divides by the requests of the whole graph.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks import tables
from benchmarks.servers import Server, free_port, parlance, running, working_folder
from benchmarks.speed.instant_engine import EVENTS, MODEL, WORDS
from benchmarks.speed.load import Figures, Job, measure
from benchmarks.speed.peers import litellm, of_its_own, router, serve_llm

CLIENTS = (1, 16, 64)
CONFIG = "benchmarks/speed/instant.yaml"
PATH = "/v1/chat/completions"
WARM_WITHIN_S = 120
PEERS = ("serve-llm", "router", "litellm")
"""Names of environments and of their locks, `requirements/peer-NAME.lock`."""

BODY = {"model": MODEL, "messages": [{"role": "user", "content": f"say {WORDS}"}]}
STREAM = {"model": MODEL, "messages": [{"role": "user", "content": f"stream {EVENTS} 0"}], "stream": True}


@dataclass(frozen=True, slots=True)
class System:
    """Something that serves POST /chat/completions."""

    server: Server
    path: str = PATH

    @property
    def name(self) -> str:
        return self.server.name

    def job(self, clients: int, stream: bool, seconds: float) -> Job:
        body = json.dumps(STREAM if stream else BODY)
        return Job(self.server.port, self.path, self.server.headers, body, clients, seconds)


@contextmanager
def direct(folder: Path) -> Iterator[System]:
    server = Server("bare ASGI app", free_port())
    command = [sys.executable, "-m", "uvicorn", "benchmarks.speed.instant:answer", "--port", str(server.port)]
    with running([*command, "--no-access-log", "--lifespan", "off"], server.url, folder / "direct.log"):
        yield System(server)


@contextmanager
def graph(folder: Path) -> Iterator[tuple[System, System]]:
    """Two bare hops, and the whole graph, on one cluster behind one HAProxy."""
    with parlance(folder, CONFIG) as server:
        yield System(Server("two bare hops", server.port), f"/bare{PATH}"), System(server)


@contextmanager
def peer(name: str, upstream: Server, folder: Path) -> Iterator[list[System]]:
    """A peer over `upstream`; ray.serve.llm, in two ways, over an engine of its own, without keys or limits."""
    python = of_its_own(name)
    if python is None:
        raise SystemExit(f"no environment: make .venv/peers/{name}/done")
    if name == "serve-llm":
        with serve_llm(python, folder) as server:
            ways = (("direct", f"/direct{PATH}"), ("default", PATH))
            yield [System(replace(server, name=f"{server.name}, {way}"), path) for way, path in ways]
        return
    start = router(python, upstream, folder) if name == "router" else litellm(python, MODEL, upstream, folder)
    with start as server:
        yield [System(server)]


Case = tuple[bool, int]
"""Whether it streams, and the number of clients."""

CASES: tuple[Case, ...] = tuple((stream, clients) for stream in (False, True) for clients in CLIENTS)


def compare(
    systems: list[System], rounds: int, seconds: float, cases: tuple[Case, ...] = CASES
) -> dict[tuple[str, Case], list[Figures]]:
    figures: dict[tuple[str, Case], list[Figures]] = {}
    for system in systems:
        warm(system)
    for _ in range(rounds):
        for case in cases:
            for system in systems:
                figures.setdefault((system.name, case), []).append(measure(system.job(case[1], case[0], seconds)))
    return figures


def warm(system: System) -> None:
    """Asks until nothing fails: HAProxy knows a new application a moment after it says that it is ready."""
    end_s = time.monotonic() + WARM_WITHIN_S
    for stream in (False, True):
        while failures := measure(system.job(4, stream, 1.0)).failures:
            print(f"warming {system.name}: {failures}", file=sys.stderr)
            if time.monotonic() > end_s:
                raise SystemExit(f"{system.name} still fails after {WARM_WITHIN_S} s: {failures}")


def table(systems: list[System], figures: dict[tuple[str, Case], list[Figures]], ours: System) -> str:
    """Markdown: a block for each case; the added time is to the first system, the ratio to `ours`."""
    rows = []
    for case in dict.fromkeys(case for _, case in figures):
        medians = [_median(figures[system.name, case]) for system in systems]
        whole_graph = medians[systems.index(ours)]
        for system, each in zip(systems, medians, strict=True):
            whole, first = ("/".join(f"{ms:.1f}" for ms in cuts) for cuts in (each.whole_ms, each.first_ms[:2]))
            added = each.whole_ms[0] - medians[0].whole_ms[0]
            ratio = each.requests_per_s / whole_graph.requests_per_s
            failed = "".join(f" ({count} times {status})" for status, count in each.failures.items())
            title, rate = f"{'stream' if case[0] else 'unary'}, {case[1]}", f"{each.requests_per_s:.0f}{failed}"
            rows.append((title, system.name, rate, whole, first, f"{added:.1f}", f"{ratio:.2f}"))
    head = "case | system | requests/s | p50/p95/p99 ms | first byte p50/p95 ms | added p50 ms"
    return tables.table(f"{head} | times {ours.name}", rows)


def ratios(folder: Path) -> dict[str, float]:
    """Requests a second of the whole graph, divided by those of two bare hops, of a short run."""
    cases = tuple(case for case in CASES if case != (True, 1))
    with graph(folder) as (bare, whole):
        figures = compare([bare, whole], 2, 1.0, cases)
    return {
        f"{'stream' if stream else 'unary'}, {clients} clients, rate": _rate(figures[whole.name, (stream, clients)])
        / _rate(figures[bare.name, (stream, clients)])
        for stream, clients in cases
    }


def _rate(rounds: list[Figures]) -> float:
    return _median(rounds).requests_per_s


def _median(rounds: list[Figures]) -> Figures:
    """Each figure's median over the rounds; failures are summed up."""

    def cuts(which: str) -> tuple[float, float, float]:
        middle = [statistics.median(column) for column in zip(*(getattr(each, which) for each in rounds), strict=True)]
        return (middle[0], middle[1], middle[2])

    rate = statistics.median(each.requests_per_s for each in rounds)
    failures = sum((Counter(each.failures) for each in rounds), Counter[str]())
    return Figures(rate, cuts("whole_ms"), cuts("first_ms"), dict(failures))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    there = [name for name in PEERS if of_its_own(name)]
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=there, help="those whose environments are there")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = stack.enter_context(working_folder("gateway-"))
        bare, (hops, ours) = stack.enter_context(direct(folder)), stack.enter_context(graph(folder))
        systems = [bare, hops, ours]
        for name in options.peers:
            systems += stack.enter_context(peer(name, bare.server, folder))
        tables.show(table(systems, compare(systems, options.rounds, options.seconds), ours))


if __name__ == "__main__":
    main()
