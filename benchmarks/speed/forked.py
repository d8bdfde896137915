"""Decoding of a chat engine that is a fork, beside one that is not: the price of the fork server once an engine runs.

    python -m benchmarks.speed.forked                 five turns, some fifteen minutes
    python -m benchmarks.speed.forked --turns 1

A turn measures three engines in whole graphs: one without a fork server; the first of a graph with one, which is no
fork, once the server's log says that it is ready and so does nothing any more; and the next one of the same graph,
which is. Each reads and writes as in `benchmarks.speed.chat`. The table gives the median of the turns, and in brackets
each turn's ratio to the engine without.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections import defaultdict
from pathlib import Path

import uvloop

from benchmarks.servers import Server, working_folder
from benchmarks.speed.chat import measure
from benchmarks.speed.cold_requests import CAPABILITIES
from benchmarks.speed.cold_start import WITH, WITHOUT, await_zero, graph, warm_up
from benchmarks.speed.peers import STREAMS

FIRST, FORK = "first engine of a graph with it", "a fork"

Rates = defaultdict[tuple[str, int], list[float]]
"""Tokens a second by engine and number of streams, one for each turn."""


def turn(folder: Path, streams: list[int], rounds: int, rates: Rates, *, begins_without: bool) -> None:
    """Adds the rates of one turn. Turns begin with another engine each, as a machine may warm up or slow down."""
    for way in (WITHOUT, WITH) if begins_without else (WITH, WITHOUT):
        with graph(folder, way) as (server, session):
            warm_up(server, session, way)
            add(server, WITHOUT if way == WITHOUT else FIRST, streams, rounds, rates)
            if way == WITH:
                await_zero(server, CAPABILITIES["chat"].deployment)
                add(server, FORK, streams, rounds, rates)


def add(server: Server, engine: str, streams: list[int], rounds: int, rates: Rates) -> None:
    """Measures one engine; the median of its rounds counts."""
    for count, measured in uvloop.run(measure(server, streams, rounds)).items():
        rates[engine, count].append(statistics.median(each.tokens_per_s for each in measured))
        print(f"{engine}, {count} streams: {rates[engine, count][-1]:.0f} tokens/s", file=sys.stderr, flush=True)


def table(rates: Rates, streams: list[int]) -> str:
    """Markdown: a row for each engine, a column for each number of streams."""
    lines = ["| tokens/s | " + " | ".join(f"{count} streams" for count in streams) + " |", "|---" * (len(streams) + 1)]
    lines[1] += "|"
    for engine in (WITHOUT, FIRST, FORK):
        cells = []
        for count in streams:
            ratios = [ours / bare for ours, bare in zip(rates[engine, count], rates[WITHOUT, count], strict=True)]
            each = "" if engine == WITHOUT else f" (**{statistics.median(ratios):.2f}**: {spread(ratios)})"
            cells.append(f"{statistics.median(rates[engine, count]):.0f}{each}")
        lines.append(f"| {engine} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def spread(ratios: list[float]) -> str:
    """All of them, so that a reader sees how much the machine moved."""
    return ", ".join(f"{ratio:.2f}" for ratio in ratios)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, STREAMS])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3, help="of each engine and number of streams in a turn")
    options = parser.parse_args()
    rates: Rates = defaultdict(list)
    with working_folder("forked-") as folder:
        for number in range(options.turns):
            turn(folder, options.streams, options.rounds, rates, begins_without=number % 2 == 0)
    print(table(rates, options.streams))
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
