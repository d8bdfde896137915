"""Processor time of a request in the ingress, beside another checkout, in turns.

    python -m benchmarks.speed.processor_time --against ../before

Requests per second say little on a machine whose speed changes while it is measured. Here each figure is divided by the
processor time that the instant engine's replica took for the same requests, which does the same in both checkouts: what
is left is what the ingress does for a request. Both graphs run the whole time.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.servers import parlance, replicas, working_folder
from benchmarks.speed.gateway import CONFIG, System, graph, warm
from benchmarks.speed.load import measure
from benchmarks.tables import show, table

CLIENTS = 16


@dataclass(frozen=True, slots=True)
class Measured:
    """Milliseconds of processor time a request, and requests per second."""

    ingress_ms: float
    engine_ms: float
    requests_per_s: float


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, metavar="PATH", required=True, help="another checkout")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement")
    options = parser.parse_args()
    results: dict[tuple[bool, str], list[Measured]] = defaultdict(list)
    with ExitStack() as stack:
        folder = stack.enter_context(working_folder("processor-"))
        ours = stack.enter_context(graph(folder))[1]
        warm(ours)
        of_ours = replicas()
        checkout = options.against.resolve()
        describe = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--exclude", "*"]
        commit = subprocess.run(describe, capture_output=True, text=True, check=False).stdout.strip()
        name = f"Parlance at {commit or checkout}"
        other = System(stack.enter_context(parlance(folder, CONFIG, checkout=checkout, name=name)))
        warm(other)
        of_other = {pid: name for pid, name in replicas().items() if pid not in of_ours}
        graphs = [(ours, of_ours), (other, of_other)]
        for number in range(options.rounds):
            for stream in (False, True):
                for system, pids in graphs if number % 2 else graphs[::-1]:
                    results[stream, system.name].append(measured(system, pids, stream, options.seconds))
    head = "16 clients | graph | ingress, ms a request | engine, ms a request | ingress by engine | requests/s"
    show(
        table(head, [("stream" if stream else "unary", name, *_row(some)) for (stream, name), some in results.items()])
    )


def _row(rounds: list[Measured]) -> tuple[str, ...]:
    ingress_ms, engine_ms, rate = (
        statistics.median(values)
        for values in zip(*((each.ingress_ms, each.engine_ms, each.requests_per_s) for each in rounds), strict=True)
    )
    ratios = sorted(each.ingress_ms / each.engine_ms for each in rounds)
    spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
    return f"{ingress_ms:.2f}", f"{engine_ms:.2f}", spread, f"{rate:.0f}"


if __name__ == "__main__":
    main()
