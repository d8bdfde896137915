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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.servers import Server, parlance, working_folder
from benchmarks.speed import chat, gateway

CLIENTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
PROMPT_WORDS = (16, 64, 256, 1024, 2048)
ROUNDS = 3
SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    unit: str
    points: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Part:
    """What one part has measured. `axis` says what grows."""

    axis: str
    lines: Sequence[Line]


# --- the parts -------------------------------------------------------------------------------------------------------


def clients(folder: Path) -> Part:
    """More clients of an engine that answers at once."""
    rates: dict[str, dict[int, float]] = {}
    lasts: dict[str, dict[int, float]] = {}
    with gateway.graph(folder) as systems:
        cases = tuple((False, count) for count in CLIENTS)
        figures = gateway.compare(list(systems), ROUNDS, SECONDS, cases)
    for (name, (_, count)), rounds in figures.items():
        rates.setdefault(name, {})[count] = statistics.median(each.requests_per_s for each in rounds)
        lasts.setdefault(name, {})[count] = statistics.median(each.whole_ms[2] for each in rounds)
    lines = [Line(name, "requests/s", points) for name, points in rates.items()]
    return Part("clients", lines + [Line(f"{name}, p99", "ms", points) for name, points in lasts.items()])


def prompts(folder: Path) -> Part:
    firsts: dict[int, float] = {}
    gaps: dict[int, float] = {}

    async def rounds(server: Server) -> None:
        await chat.send(server, 1)
        for words in PROMPT_WORDS:
            done = [await chat.send(server, 1, words=words) for _ in range(ROUNDS)]
            tokens = round(statistics.mean(each.tokens_in for each in done))
            firsts[tokens] = statistics.median(each.ttft_ms[0] for each in done)
            gaps[tokens] = statistics.median(each.gap_ms[0] for each in done)

    with parlance(folder) as server:
        asyncio.run(rounds(server))
    return Part("tokens of the prompt", [Line("first token", "ms", firsts), Line("between tokens", "ms", gaps)])


PARTS: Mapping[str, Callable[[Path], Part]] = {"clients": clients, "prompts": prompts}


# --- the page --------------------------------------------------------------------------------------------------------


def table(part: Part) -> str:
    """Markdown: a row for each size, a column for each line."""
    sizes = sorted({size for line in part.lines for size in line.points})
    head = f"| {part.axis} | " + " | ".join(f"{line.name}, {line.unit}" for line in part.lines) + " |"
    cells = (" | ".join(_number(line.points[size]) for line in part.lines) for size in sizes)
    rows = [f"| {size} | {row} |" for size, row in zip(sizes, cells, strict=True)]
    return "\n".join([head, "|---" * (len(part.lines) + 1) + "|", *rows])


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed.growth",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    for name in options.parts or PARTS:
        with working_folder("growth-") as folder:
            print(f"\n{table(PARTS[name](folder))}", flush=True)


if __name__ == "__main__":
    main()
