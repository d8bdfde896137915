"""Runs the clients that people use against a graph, and says in a table what works.

    python -m benchmarks.clients                                         a graph of its own, all programs, some minutes
    python -m benchmarks.clients --base-url http://127.0.0.1:8000        one that runs, with the key in PARLANCE_KEY
    python -m benchmarks.clients --only openai                           programs with this in their name
    python -m benchmarks.clients --write                                 put the table into docs/clients.md

Exit 1: a step that should work does not, or one that cannot work does; where the variable CI is set, also one that
could not be tried. `make conformance` sets up the clients first.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from benchmarks.clients.programs import PROGRAMS, Program
from benchmarks.clients.running import Runner, Verdict, node_here
from benchmarks.clients.table import line, write
from benchmarks.servers import parlance, working_folder


def main(arguments: Sequence[str] | None = None) -> None:
    # So that a graph of its own ends with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    parser = _parser()
    options = parser.parse_args(arguments)
    chosen = [program for program in PROGRAMS if options.only in program.name]
    if not chosen:
        parser.error(f"no program has {options.only!r} in its name; there are {', '.join(p.name for p in PROGRAMS)}")
    with ExitStack() as running:
        url, key = options.base_url, os.environ.get("PARLANCE_KEY", "")
        if not url:
            server = running.enter_context(parlance(running.enter_context(working_folder("conformance-"))))
            url, key = server.url, server.key
        if not key:
            parser.error("PARLANCE_KEY must hold a key with every scope; its organisation pays")
        # Not resolved: a link is what makes an environment out of its interpreter.
        runner = Runner(url.rstrip("/"), key, options.python.absolute(), node_here())
        verdicts = try_all(runner, chosen)
    if options.write:
        write(verdicts)
    failed = [verdict for verdict in verdicts if not is_well(verdict.passed)]
    print("\n".join(map(line, failed)))  # once more, where the end of a log shows it
    sys.exit(bool(failed))


def is_well(passed: bool | None) -> bool:
    """Whether a step with this verdict leaves the run green. In CI, what could not be tried is red."""
    return bool(passed) if os.environ.get("CI") else passed is not False


def try_all(runner: Runner, chosen: Sequence[Program]) -> list[Verdict]:
    """The verdicts on `chosen`, one program after the other, each step as a row on standard output."""
    print("| client | step | | |\n|---|---|---|---|", flush=True)
    verdicts: list[Verdict] = []
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        for program in progress.track(chosen, description="programs"):
            results = runner.run(program)
            verdicts += results
            print("\n".join(map(line, results)), flush=True)
    passed = sum(one.passed is True for one in verdicts)
    print(f"\n{passed} of {len(verdicts)} steps ended as they should.", flush=True)
    return verdicts


def _parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m benchmarks.clients", description=__doc__, formatter_class=form)
    parser.add_argument("--base-url", help="of a graph that runs, without a path; otherwise one is started")
    parser.add_argument("--only", default="", metavar="NAME", help="programs with this in their name")
    environment = Path(".venv/conformance/bin/python")
    parser.add_argument("--python", type=Path, default=environment, help="the interpreter that has the clients")
    parser.add_argument("--write", action="store_true", help="put the table into docs/clients.md")
    return parser


if __name__ == "__main__":
    main()
