"""Growth of cost with clients and with the length of prompts.

    python -m benchmarks.speed.growth
    python -m benchmarks.speed.growth clients

clients     requests a second and p99 of 1 to 256 clients, beside two bare hops of Ray Serve (the instant engine)
prompts     time to the first token and between tokens of one chat stream, by the length of its prompt
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks import tables
from benchmarks.servers import Server, parlance, working_folder
from benchmarks.speed import chat, gateway

CLIENTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
PROMPT_WORDS = (16, 64, 256, 1024, 2048)
ROUNDS = 3
SECONDS = 2.0

Columns = Mapping[str, Mapping[int, float]]
"""Figures by the heading of their column and by size."""


def clients(folder: Path) -> Columns:
    """More clients of an engine that answers at once."""
    columns: defaultdict[str, dict[int, float]] = defaultdict(dict)
    with gateway.graph(folder) as systems:
        cases = tuple((False, count) for count in CLIENTS)
        figures = gateway.compare(list(systems), ROUNDS, SECONDS, cases)
    for (name, (_, count)), rounds in figures.items():
        columns[f"{name}, requests/s"][count] = statistics.median(each.requests_per_s for each in rounds)
        columns[f"{name}, p99, ms"][count] = statistics.median(each.whole_ms[2] for each in rounds)
    return columns


def prompts(folder: Path) -> Columns:
    """Longer prompts of one stream; the size is in tokens."""
    columns: dict[str, dict[int, float]] = {"first token, ms": {}, "between tokens, ms": {}}

    async def rounds(server: Server) -> None:
        await chat.send(server, 1)
        for words in PROMPT_WORDS:
            done = [await chat.send(server, 1, words=words) for _ in range(ROUNDS)]
            tokens = round(statistics.mean(each.tokens_in for each in done))
            columns["first token, ms"][tokens] = statistics.median(each.ttft_ms[0] for each in done)
            columns["between tokens, ms"][tokens] = statistics.median(each.gap_ms[0] for each in done)

    with parlance(folder) as server:
        asyncio.run(rounds(server))
    return columns


PARTS: Mapping[str, Callable[[Path], Columns]] = {"clients": clients, "prompts": prompts}


def table(columns: Columns) -> str:
    """Markdown: a row for each size."""
    sizes = sorted(next(iter(columns.values())))
    rows = [(size, *(_number(points[size]) for points in columns.values())) for size in sizes]
    return tables.table(" | ".join(["", *columns]), rows)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", choices=[*PARTS, []], help=", ".join(PARTS))
    options = parser.parse_args()
    for name in options.parts or PARTS:
        with working_folder("growth-") as folder:
            print(f"\n{name}\n\n{table(PARTS[name](folder))}", flush=True)


if __name__ == "__main__":
    main()
