"""Processor time of a request in the ingress, beside another checkout or beside itself with traces, in turns.

    python -m benchmarks.speed.processor_time --against ../before
    python -m benchmarks.speed.processor_time --traced 0.01         one in a hundred requests is traced, to a collector

Requests per second say little on a machine whose speed changes while it is measured. Here each figure is divided by the
processor time that the instant engine's replica took for the same requests, which does the same in both checkouts: what
is left is what the ingress does for a request. Both graphs run the whole time. A collector is a process of its own,
which counts what it takes; that some of it came is printed below the table.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
from starlette.types import Receive, Scope, Send

from benchmarks.servers import free_port, parlance, running, working_folder
from benchmarks.speed.gateway import CONFIG, WHOLE, System, graph, other_graph, warm
from benchmarks.speed.load import measure

MODULE = "benchmarks.speed.processor_time"
REPLICA = "ray::ServeReplica:parlance:"
CLIENTS = 16
TAKEN: list[str] = []
"""Paths of calls that brought spans, in the process of a collector."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Milliseconds of processor time a request, and requests per second."""

    ingress_ms: float
    engine_ms: float
    requests_per_s: float


def replicas() -> dict[int, str]:
    """Every replica of a graph on this machine, by id of its process."""
    names = {}
    for process in psutil.process_iter(["cmdline"]):
        title = " ".join(process.info["cmdline"] or ())
        if title.startswith(REPLICA):
            names[process.pid] = title.removeprefix(REPLICA).strip()
    return names


def spent_ms(pids: dict[int, str], ingress: bool) -> float:
    """Of the ingress, or of the engines, so far."""
    times = [psutil.Process(pid).cpu_times() for pid, name in pids.items() if (name == "ingress") == ingress]
    return float(sum(time.user + time.system for time in times)) * 1000


def measured(system: System, pids: dict[int, str], stream: bool, seconds: float) -> Measured:
    """One case, in one turn."""
    before = [spent_ms(pids, ingress) for ingress in (True, False)]
    figures = measure(system.job(CLIENTS, stream, seconds))
    after = [spent_ms(pids, ingress) for ingress in (True, False)]
    requests = figures.requests_per_s * seconds + CLIENTS  # as many come before
    ingress_ms, engine_ms = ((end - start) / requests for start, end in zip(before, after, strict=True))
    return Measured(ingress_ms, engine_ms, figures.requests_per_s)


async def collect(scope: Scope, receive: Receive, send: Send) -> None:
    """A collector, as an ASGI app: takes spans, and answers with how many calls have brought some."""
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    if scope["method"] == "POST":
        TAKEN.append(scope["path"])
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "POST" else b"%d" % len(TAKEN)})


@contextmanager
def traced_graph(share: float, collector: str, folder: Path) -> Iterator[System]:
    """The whole graph of this checkout, which sends the spans of a share of all requests."""
    with parlance(
        folder,
        CONFIG,
        name=f"with {share:.1%} traced",
        OTEL_EXPORTER_OTLP_ENDPOINT=collector,
        OTEL_TRACES_SAMPLER="traceidratio",
        OTEL_TRACES_SAMPLER_ARG=str(share),
    ) as server:
        yield System(server, WHOLE)


@contextmanager
def collecting(folder: Path) -> Iterator[str]:
    """The address of a collector."""
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", f"{MODULE}:collect", "--port", str(port), "--lifespan", "off"]
    with running([*command, "--no-access-log"], address := f"http://127.0.0.1:{port}", folder / "collector.log"):
        yield address


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    second = parser.add_mutually_exclusive_group(required=True)
    second.add_argument("--against", type=Path, metavar="PATH", help="another checkout")
    second.add_argument(
        "--traced", type=float, metavar="SHARE", help="this checkout, with this share of requests traced"
    )
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement")
    options = parser.parse_args()
    results: dict[tuple[bool, str], list[Measured]] = defaultdict(list)
    with ExitStack() as stack:
        folder = stack.enter_context(working_folder("processor-"))
        ours = stack.enter_context(graph(folder))[1]
        warm(ours)
        of_ours = replicas()
        collector = stack.enter_context(collecting(folder)) if options.traced is not None else ""
        second_graph = (
            traced_graph(options.traced, collector, folder) if collector else other_graph(options.against, folder)
        )
        other = stack.enter_context(second_graph)
        warm(other)
        of_other = {pid: name for pid, name in replicas().items() if pid not in of_ours}
        graphs = [(ours, of_ours), (other, of_other)]
        for number in range(options.rounds):
            for stream in (False, True):
                for system, pids in graphs if number % 2 else graphs[::-1]:
                    results[stream, system.name].append(measured(system, pids, stream, options.seconds))
        calls = httpx.get(collector).text if collector else ""
    print("| 16 clients | graph | ingress, ms a request | engine, ms a request | ingress by engine | requests/s |")
    print("|---|---|---|---|---|---|")
    for stream in (False, True):
        for system, _ in graphs:
            print(_row("stream" if stream else "unary", system.name, results[stream, system.name]))
    print(f"load average {os.getloadavg()[0]:.1f}{f'; spans came in {calls} calls' if calls else ''}")


def _row(case: str, name: str, rounds: list[Measured]) -> str:
    ingress_ms, engine_ms, rate = (
        statistics.median(values)
        for values in zip(*((each.ingress_ms, each.engine_ms, each.requests_per_s) for each in rounds), strict=True)
    )
    ratios = sorted(each.ingress_ms / each.engine_ms for each in rounds)
    spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
    return f"| {case} | {name} | {ingress_ms:.2f} | {engine_ms:.2f} | {spread} | {rate:.0f} |"


if __name__ == "__main__":
    main()
