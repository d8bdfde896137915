"""Breaks a graph of its own in every way that docs/reliability.md speaks of, and counts what was lost.

    python -m tests.campaign                     all parts: an hour and a half
    python -m tests.campaign --short --seed 7    17 minutes: fewer tries, of each death one way
    python -m tests.campaign deaths load         only these parts
    python -m tests.campaign --publish           docs/made/campaign.json, of which docs/reliability.md is made, too

Exit 0: nothing was lost. Each part is a module with one function, whose outcomes are printed as they come:

    async def outcomes(seed: int, sizes: Sizes, place: Graph) -> AsyncIterator[Outcome]

`place` of machines, disks, databases and nodes, which run no graph, is the `Path` of a folder that is empty, on a disk.
"""

import argparse
import asyncio
import logging
import platform
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil

from benchmarks.servers import working_folder
from tests.campaign.graph import running
from tests.campaign.record import LOG, Outcome, Record, Sizes

WITHOUT_GRAPH = ("machines", "disks", "databases", "nodes")
ON_A_GRAPH = ("deaths", "load", "inputs", "tenants", "reloads")
PARTS = WITHOUT_GRAPH + ON_A_GRAPH
RECORD = LOG.with_suffix(".json")
PUBLISHED = Path(__file__).parents[2] / "docs/made/campaign.json"

Part = Callable[[int, Sizes, Any], AsyncIterator[Outcome]]


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point. Exits with 1 if something was lost."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if unknown := set(options.parts) - {*PARTS}:
        parser.error(f"there is no part {', '.join(sorted(unknown))}; choose from {', '.join(PARTS)}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the graph is stopped then, too
    # What the state of this process says of each fault would hide the rows.
    logging.getLogger("parlance").addHandler(logging.FileHandler(LOG))
    logging.getLogger("parlance").propagate = False
    print(f"seed {options.seed}; the log is {LOG}", flush=True)
    day = datetime.now(UTC).date().isoformat()
    record = Record(options.seed, options.short, day, _machine(), [])
    asyncio.run(_run(options.parts or PARTS, record, options.keep))
    if options.publish:
        record.write(PUBLISHED)
    sys.exit(any(outcome.lost for outcome in record.outcomes))


async def _run(parts: Sequence[str], record: Record, keep: Path) -> None:
    with working_folder("campaign-") as folder:
        for name in [name for name in parts if name in WITHOUT_GRAPH]:
            (home := folder / name).mkdir()
            await _part(name, record, home, keep)
        if of_graph := [name for name in parts if name in ON_A_GRAPH]:
            with running(folder) as graph:
                for name in of_graph:
                    await _part(name, record, graph, keep)


async def _part(name: str, record: Record, place: Any, keep: Path) -> None:
    """Adds the outcomes of a part, each printed as a row and kept as soon as it is known, and how long they took."""
    part: Part = import_module(f"tests.campaign.{name}").outcomes
    began_s = time.monotonic()
    try:
        async for outcome in part(record.seed, Sizes(record.is_short), place):
            _add(record, outcome, keep)
    except Exception as error:  # the other parts have something to say, too
        traceback.print_exc()
        seen = Counter([f"LOST: {type(error).__name__}"])
        _add(record, Outcome(name, "the part was not finished", "It is.", 1, 1, None, seen), keep)
    record.took_s[name] = round(time.monotonic() - began_s)
    print(f"{name} took {record.took_s[name]} s", flush=True)
    record.write(keep)


def _add(record: Record, outcome: Outcome, keep: Path) -> None:
    seen = ", ".join(f"{name} x{count}" for name, count in sorted(outcome.seen.items()))
    within = "" if outcome.normal_s is None else f"{outcome.normal_s:.1f} s"
    print(f"| {outcome.part} | {outcome.fault} | {outcome.times} | {outcome.lost} | {within} | {seen} |", flush=True)
    record.outcomes.append(outcome)
    record.write(keep)


def _machine() -> str:
    """Processors and memory in words."""
    gib = psutil.virtual_memory().total / 2**30
    return f"{psutil.cpu_count()} cores {platform.machine()}, {gib:.0f} GiB, Linux {platform.release()}"


def _parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__, formatter_class=form)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6), help="a random one else")
    parser.add_argument("--short", action="store_true", help="one try of each fault")
    parser.add_argument(
        "--keep", type=Path, metavar="FILE", default=RECORD, help=f"where the record is written ({RECORD})"
    )
    parser.add_argument("--publish", action="store_true", help=f"write {PUBLISHED.name} of the documentation, too")
    return parser


if __name__ == "__main__":
    main()
