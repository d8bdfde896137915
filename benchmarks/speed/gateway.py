"""What the ingress adds to a call: requests per second and latency beside less and beside peers, in turns in one run.

    python -m benchmarks.speed.gateway
    python -m benchmarks.speed.gateway --peers router litellm      beside these only; none without a name
    python -m benchmarks.speed.gateway --against ../before         beside the whole graph of another checkout

Everything answers with the same instant engine (`benchmarks.speed.instant`): a bare ASGI app under uvicorn; two bare
hops of Ray Serve behind HAProxy; this project with every check on (key, scope, rate, body, a spend limit that is
reserved and settled in SQLite, one usage line a request); and the peers of `PEERS`, each where `make bench` has made
its environment. Clients are a process of their own (`benchmarks.speed.load`). Streams are 50 events without a pause.
All of them run the whole time and are measured in turns. `--against` adds a second graph on a cluster of its own. The
last column divides by the requests of the whole graph.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.servers import Server, free_port, parlance, running, working_folder
from benchmarks.speed.instant_engine import EVENTS, MODEL, WORDS
from benchmarks.speed.load import Figures, Job, measure
from benchmarks.speed.peers import litellm, of_its_own, router, serve_llm

CLIENTS = (1, 16, 64)
CONFIG = "benchmarks/speed/instant.yaml"
WARM_WITHIN_S = 120
WHOLE = "the whole graph"

BODY = {"model": MODEL, "messages": [{"role": "user", "content": f"say {WORDS}"}]}
STREAM = {"model": MODEL, "messages": [{"role": "user", "content": f"stream {EVENTS} 0"}], "stream": True}


@dataclass(frozen=True, slots=True)
class System:
    """Something that serves POST /chat/completions.

    Attributes:
        through: what stands between a client and the engine.
    """

    server: Server
    through: str
    path: str = "/v1/chat/completions"

    @property
    def name(self) -> str:
        return self.server.name

    def job(self, clients: int, stream: bool, seconds: float) -> Job:
        body = json.dumps(STREAM if stream else BODY)
        return Job(self.server.port, self.path, self.server.headers, body, clients, seconds)


# --- the systems -----------------------------------------------------------------------------------------------------


@contextmanager
def direct(folder: Path) -> Iterator[System]:
    server = Server("bare ASGI app", free_port())
    command = [sys.executable, "-m", "uvicorn", "benchmarks.speed.instant:answer", "--port", str(server.port)]
    with running([*command, "--no-access-log", "--lifespan", "off"], server.url, folder / "direct.log"):
        yield System(server, "uvicorn")


@contextmanager
def graph(folder: Path) -> Iterator[tuple[System, System]]:
    """Two bare hops, and the whole graph, on one cluster behind one HAProxy."""
    with parlance(folder, CONFIG) as server:
        bare = Server("two bare hops", server.port)
        yield System(bare, "HAProxy, two hops of Ray Serve", "/bare/v1/chat/completions"), System(server, WHOLE)


@contextmanager
def other_graph(checkout: Path, folder: Path) -> Iterator[System]:
    """The whole graph of another checkout, with its own engine, customer and database."""
    checkout = checkout.resolve()
    describe = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--exclude", "*"]
    commit = subprocess.run(describe, capture_output=True, text=True, check=False).stdout.strip()
    with parlance(folder, CONFIG, checkout=checkout, name=f"Parlance at {commit or checkout}") as server:
        yield System(server, WHOLE)


@contextmanager
def litellm_proxy(python: Path, upstream: Server, folder: Path) -> Iterator[list[System]]:
    with litellm(python, MODEL, upstream, folder) as server:
        yield [System(server, "its proxy, with a key and no database, over the bare ASGI app")]


@contextmanager
def compiled_router(python: Path, upstream: Server, folder: Path) -> Iterator[list[System]]:
    with router(python, upstream, folder) as server:
        yield [System(server, "compiled, without a key, over the bare ASGI app")]


@contextmanager
def graph_of_ray(python: Path, upstream: Server, folder: Path) -> Iterator[list[System]]:
    """Without keys or limits, on a cluster of its own; its engine is in it, so `upstream` is not asked."""
    with serve_llm(python, folder) as server:
        direct_streaming = Server(f"{server.name}, direct", server.port)
        yield [
            System(direct_streaming, "HAProxy, which asks a router; vLLM's app", "/direct/v1/chat/completions"),
            System(Server(f"{server.name}, default", server.port), "HAProxy, ingress, engine"),
        ]


PEERS: dict[str, Callable[[Path, Server, Path], AbstractContextManager[list[System]]]] = {
    "serve-llm": graph_of_ray,
    "router": compiled_router,
    "litellm": litellm_proxy,
}
"""By the name of the environment and its lock, `requirements/peer-NAME.lock`: its systems over a bare ASGI app."""


# --- the comparison --------------------------------------------------------------------------------------------------

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
    lines = [
        "| case | system | through | requests/s | p50/p95/p99 ms | first byte p50/p95 ms | added p50 ms "
        f"| times {ours.name} |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for case in dict.fromkeys(case for _, case in figures):
        medians = [_median(figures[system.name, case]) for system in systems]
        whole_graph = medians[systems.index(ours)]
        for system, each in zip(systems, medians, strict=True):
            whole, first = ("/".join(f"{ms:.1f}" for ms in cuts) for cuts in (each.whole_ms, each.first_ms[:2]))
            added = each.whole_ms[0] - medians[0].whole_ms[0]
            ratio = each.requests_per_s / whole_graph.requests_per_s
            failed = "".join(f" ({count} times {status})" for status, count in each.failures.items())
            title = f"{'stream' if case[0] else 'unary'}, {case[1]} | {system.name} | {system.through}"
            lines.append(
                f"| {title} | {each.requests_per_s:.0f}{failed} | {whole} | {first} | {added:.1f} | {ratio:.2f} |"
            )
    return "\n".join(lines)


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
    parser.add_argument(
        "--against", type=Path, metavar="PATH", help="another checkout, whose graph is measured as well"
    )
    there = [name for name in PEERS if of_its_own(name)]
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=there, help="those whose environments are there")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = stack.enter_context(working_folder("gateway-"))
        bare, (hops, ours) = stack.enter_context(direct(folder)), stack.enter_context(graph(folder))
        systems = [bare, hops, ours]
        if options.against:
            systems.append(stack.enter_context(other_graph(options.against, folder)))
        for name in options.peers:
            python = of_its_own(name)
            if python is None:
                raise SystemExit(f"no environment: make .venv/peers/{name}/done")
            systems += stack.enter_context(PEERS[name](python, bare.server, folder))
        print(table(systems, compare(systems, options.rounds, options.seconds), ours))
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
