"""How cost grows: what more clients, longer prompts, more models and more ingress replicas do to a graph.

    python -m benchmarks.speed.growth clients prompts models
    python -m benchmarks.speed.growth replicas --database postgresql://... --redis redis://...

clients     requests a second and p99 of 1 to 256 clients, beside two bare hops of Ray Serve (the instant engine)
prompts     time to the first token and between tokens of one chat stream, by the length of its prompt
models      start, rate and memory of graphs of 1 to 30 models, all but one of them asleep (the instant engine)
replicas    processor time of a request with 1 to 4 ingress replicas; they share PostgreSQL and Redis
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import psutil
import yaml
from sqlalchemy.engine import make_url

from benchmarks.servers import ROOT, Server, parlance, working_folder
from benchmarks.speed import chat, gateway
from benchmarks.speed.load import measure
from state.database.base import migrate

CLIENTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
PROMPT_WORDS = (16, 64, 256, 1024, 2048)
MODELS = (1, 10, 30)
REPLICAS = (1, 2, 4)
ROUNDS = 3
SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Line:
    """A figure by what grows."""

    name: str
    unit: str
    points: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Part:
    """What one part has measured. `axis` says what grows."""

    axis: str
    lines: Sequence[Line]


# --- the parts -------------------------------------------------------------------------------------------------------


def clients(options: argparse.Namespace, folder: Path) -> Part:
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


def prompts(options: argparse.Namespace, folder: Path) -> Part:
    """Longer prompts of one chat stream."""
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


def models(options: argparse.Namespace, folder: Path) -> Part:
    """More models in one graph; one of them is asked."""
    starts: dict[int, float] = {}
    rates: dict[int, float] = {}
    memory: dict[int, float] = {}
    for count in MODELS:
        began_s = time.perf_counter()
        with instant(folder, models=count) as (server, processes):
            starts[count] = time.perf_counter() - began_s
            rates[count] = _rate(server, 16)
            memory[count] = processes.memory_mib()
    return Part(
        "models",
        [
            Line("start", "s", starts),
            Line("16 clients", "requests/s", rates),
            Line("memory of the graph", "MiB", memory),
        ],
    )


def replicas(options: argparse.Namespace, folder: Path) -> Part:
    """More ingress replicas on one machine."""
    rates: dict[int, float] = {}
    costs: dict[int, float] = {}
    if not (options.database and options.redis):
        raise SystemExit("the part `replicas` needs --database and --redis: ingress replicas share both")
    (folder / "files").mkdir()
    shared = {"PARLANCE_REDIS_URL": options.redis, "PARLANCE_SECRET": secrets.token_hex(32)}
    shared["PARLANCE_BLOBS_URL"] = (folder / "files").as_uri()
    for count in REPLICAS:
        shared["PARLANCE_DATABASE_URL"] = asyncio.run(fresh_database(options.database))
        with instant(folder, replicas=count, **shared) as (server, processes):
            _rate(server, 64)
            before_s = processes.processor_s()
            rates[count] = _rate(server, 64)
            costs[count] = (processes.processor_s() - before_s) * 1000 / (rates[count] * SECONDS + 64)
    return Part(
        "ingress replicas",
        [Line("64 clients", "requests/s", rates), Line("processor time of all processes", "ms a request", costs)],
    )


async def fresh_database(url: str) -> str:
    """The address of a new database with its tables, beside the one at `url`."""
    name = f"growth_{secrets.token_hex(4)}"
    connection = await asyncpg.connect(url)
    await connection.execute(f"CREATE DATABASE {name}")
    await connection.close()
    fresh = make_url(url).set(database=name).render_as_string(hide_password=False)
    await migrate(fresh)
    return fresh


@dataclass(frozen=True, slots=True)
class Processes:
    """All processes that started after `earlier` did."""

    earlier: frozenset[int]

    def _running(self) -> Iterator[psutil.Process]:
        yield from (process for process in psutil.process_iter() if process.pid not in self.earlier)

    def memory_mib(self) -> float:
        """Shared pages are counted once for all that share them."""
        return float(sum(process.memory_full_info().pss for process in self._running())) / 2**20

    def processor_s(self) -> float:
        """In all, so far."""
        return float(sum(sum(process.cpu_times()[:2]) for process in self._running()))


@contextmanager
def instant(
    folder: Path, *, models: int = 1, replicas: int = 1, **environment: str
) -> Iterator[tuple[Server, Processes]]:
    """A graph of so many instant models behind so many ingress replicas."""
    config = yaml.safe_load((ROOT / gateway.CONFIG).read_text("utf-8"))
    config["applications"] = config["applications"][:1]
    config["applications"][0]["args"] |= {"models": models, "replicas": replicas}
    file = folder / f"{models}-{replicas}.yaml"
    file.write_text(yaml.safe_dump(config), "utf-8")
    processes = Processes(frozenset(psutil.pids()))
    with parlance(folder, file, checkout=ROOT, **environment) as server:
        gateway.warm(gateway.System(server, gateway.WHOLE))
        yield server, processes


def _rate(server: Server, count: int) -> float:
    """Requests a second of so many clients."""
    return measure(gateway.System(server, gateway.WHOLE).job(count, False, SECONDS)).requests_per_s


PARTS: Mapping[str, Callable[[argparse.Namespace, Path], Part]] = {
    "clients": clients,
    "prompts": prompts,
    "models": models,
    "replicas": replicas,
}


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
    """Entry point."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed.growth",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--database", metavar="URL", help="a PostgreSQL whose user may make databases, for `replicas`")
    parser.add_argument("--redis", metavar="URL", help="for `replicas`")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    for name in options.parts or PARTS:
        with working_folder("growth-") as folder:
            print(f"\n{table(PARTS[name](options, folder))}", flush=True)


if __name__ == "__main__":
    main()
