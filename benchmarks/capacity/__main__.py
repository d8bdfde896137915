"""Replays yesterday on tomorrow's policy: `python -m benchmarks.capacity`.

The policy, the waiting rooms and the rules for cold and busy engines are those of production; replicas only count time.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from ray.serve.config import AutoscalingConfig
from rich.console import Console
from rich.table import Column, Table

import configs
from autoscaling.deployment import deployment_options
from autoscaling.policy.options import Scaling, terms_of
from benchmarks.capacity import made
from benchmarks.capacity.engine import Setup
from benchmarks.capacity.policies import POLICIES
from benchmarks.capacity.processes import Run, Setups, play_all
from benchmarks.capacity.run import simulate
from benchmarks.capacity.summary import Summary
from benchmarks.capacity.traces import SimulatedTrace, TraceError, read
from contract.catalog import Model

EPILOGUE = """examples:
  python -m benchmarks.capacity day
      a made day of requests, by three policies
  python -m state usage --since 2026-11-24 --format csv | python -m benchmarks.capacity -
      what was asked of this server since yesterday
  python -m benchmarks.capacity flood --engine chat-smollm2-135m-instruct --set max_replicas=4
      one organisation floods one engine, which may have four replicas
  python -m benchmarks.capacity day --policy serve --sweep idle_s=30,60,120,300,600 --json sweep.json
      what each idle time costs, in waits and in money

in the table:
  busy, warming up, late    requests that were refused: no place, a cold engine, a turn that did not come in time
  cold hits                 requests that came while no replica ran
  p50, p95, p99             waits of those that were answered
  others p95                the same of all organisations but the one that asks most

`python -m docs.made.pictures.simulation sweep.json FOLDER` draws what --json has written.
"""

WIDTH = 140
ERRORS = Console(stderr=True)

COLUMNS: Mapping[str, Callable[[Summary], str]] = {
    "policy": lambda run: run.policy,
    "answered": lambda run: f"{run.answered:,}",
    "busy": lambda run: f"{run.busy:,}",
    "warming up": lambda run: f"{run.warming_up:,}",
    "late": lambda run: f"{run.late:,}",
    "cold hits": lambda run: f"{run.cold_hits:,}",
    "p50": lambda run: f"{run.p50_s:.2f}",
    "p95": lambda run: f"{run.p95_s:.2f}",
    "p99": lambda run: f"{run.p99_s:.2f}",
    "others p95": lambda run: f"{run.others_p95_s:.2f}",
    "starts": lambda run: f"{run.starts:,}",
    "replica-hours": lambda run: f"{run.replica_hours:,.2f}",
    "EUR": lambda run: f"{run.cost_eur:,.2f}",
}


def command_line() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.capacity",
        description="plays requests through the scaling policy and the waiting rooms of production, in virtual time",
        epilog=EPILOGUE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    columns = "a CSV file with the columns at, model, organisation and work_s; `-` for one on standard input"
    add("trace", help=f"{columns}; or a made one: {', '.join(made.SHAPES)}")
    profile = "profile with the engines that are simulated (default: embedded)"
    add("--profile", default="embedded", choices=configs.PROFILES, help=profile)
    several = "may be repeated"
    add(
        "--engine", action="append", metavar="NAME", help=f"only this deployment; {several}, the most popular one first"
    )
    add("--policy", action="append", choices=tuple(POLICIES), help=f"who scales; {several} (default: each of them)")
    key = f"a key of every stanza's `serving` or of its autoscaling_config; {several}"
    add("--set", action="append", default=[], metavar="KEY=VALUE", help=key)
    add("--sweep", metavar="KEY=A,B,C", help="such a key; runs once for each of these values")
    add("--requests", type=int, default=20_000, metavar="N", help="of a made trace (default: 20000)")
    add("--hours", type=float, default=24.0, metavar="H", help="of a made trace (default: 24)")
    add("--owners", type=int, default=50, metavar="N", help="organisations of a made trace (default: 50)")
    work = "mean seconds of work of a request of a made trace (default: 5)"
    add("--work-s", type=float, default=5.0, metavar="S", help=work)
    longer = "by this share of its time alone a call is longer for each other one at its replica (default: 0)"
    add("--slowdown", type=float, default=0.0, metavar="X", help=longer)
    shared = f"what engines share, by Ray's names, such as GPU=2; {several} (default: there is enough)"
    add("--room", action="append", default=[], metavar="RESOURCE=AMOUNT", help=shared)
    add("--ingresses", type=int, default=1, metavar="N", help="ingress replicas (default: 1)")
    add("--eur-an-hour", type=float, default=0.1, metavar="EUR", help="price of a replica (default: 0.1)")
    add("--seed", type=int, default=1, metavar="N", help="the same one gives the same result (default: 1)")
    add("--json", type=Path, metavar="FILE", help="where results go, for programs and pictures")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs all and prints a table."""
    parser = command_line()
    options = parser.parse_args(arguments)
    try:
        models = _models(options.profile, options.engine)
        trace = _trace(options, models)
        key, values = _sweep(options.sweep)
        runs = [
            Run(
                f"{policy}, {key}={value}" if key else policy,
                policy,
                _setups(options, models, {key: value} if key else {}),
            )
            for policy in options.policy or POLICIES
            for value in values
        ]
        room = {resource: float(amount) for resource, amount in map(_setting, options.room)}
    except (TraceError, ValueError, OSError) as error:
        parser.error(str(error))
    for note in trace.notes:
        ERRORS.print(note, highlight=False)
    summaries = play_all(trace, runs, partial(simulate, ingresses=options.ingresses, seed=options.seed), room)
    table = Table(*(Column(name, no_wrap=True) for name in COLUMNS), box=None, pad_edge=False)
    for run in summaries:
        table.add_row(*(cell(run) for cell in COLUMNS.values()))
    Console(width=WIDTH).print(f"{len(trace):,} requests; waits in seconds", table, sep="\n", highlight=False)
    if options.json:
        options.json.write_text(json.dumps([asdict(run) for run in summaries]), "utf-8")
    return 0


def _models(profile: str, names: Sequence[str] | None) -> dict[str, Model]:
    """Models of the profile by their deployments; all or those that are named. Raises ValueError."""
    models = {model.deployment: model for model in configs.load(profile).deployed()}
    if unknown := [name for name in names or () if name not in models]:
        raise ValueError(f"{profile} has no deployment `{unknown[0]}`; it has {', '.join(models)}")
    return {name: models[name] for name in names or models}


def _trace(options: argparse.Namespace, models: Mapping[str, Model]) -> SimulatedTrace:
    if options.trace in made.SHAPES:
        seconds = 3600 * options.hours
        if options.requests < 1 or seconds <= 0 or options.work_s <= 0 or options.owners < 1:
            raise ValueError("a made trace needs at least one request, one owner, and hours and work above 0")
        return made.trace(
            options.trace, tuple(models), options.requests, seconds, options.owners, options.work_s, options.seed
        )
    engines = {model.id: name for name, model in models.items()}
    if options.trace == "-":
        return read(sys.stdin, engines, time.time())
    with Path(options.trace).open(encoding="utf-8", newline="") as file:
        return read(file, engines, time.time())


def _sweep(text: str | None) -> tuple[str, Sequence[Any]]:
    """The key that is swept and its values; one value that is not used where none is."""
    if text is None:
        return "", ("",)
    key, values = _setting(text)
    return key, [_value(value) for value in values.split(",")]


def _setting(text: str) -> tuple[str, str]:
    key, is_set, value = text.partition("=")
    if not is_set or not value:
        raise ValueError(f"`{text}` sets nothing; write it like idle_s=60")
    return key, value


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _setups(options: argparse.Namespace, models: Mapping[str, Model], sweep: Mapping[str, Any]) -> Setups:
    """Returns the simulated settings of each engine. Raises ValueError."""
    changes = {key: _value(value) for key, value in map(_setting, options.set)} | dict(sweep)
    return {name: _setup(model, changes, options) for name, model in models.items()}


def _setup(model: Model, changes: Mapping[str, Any], options: argparse.Namespace) -> Setup:
    tables = (type(model.setup).model_fields, AutoscalingConfig.model_fields)
    if unknown := [key for key in changes if not any(key in table for table in tables)]:
        known = sorted({key for table in tables for key in table if not key.startswith("_")})
        raise ValueError(f"nothing is named `{unknown[0]}`; there are {', '.join(known)}")
    of_serving, of_config = ({key: changes[key] for key in changes if key in table} for table in tables)
    serving = type(model.setup).model_validate(model.setup.model_dump() | of_serving)
    deployed = deployment_options(model.model_copy(update={"serving": serving}), scaling=Scaling(by="serve"))
    deployed["autoscaling_config"] |= of_config
    config = AutoscalingConfig(**deployed["autoscaling_config"])
    price = round(1e6 * options.eur_an_hour)
    return Setup(model.deployment, serving, config, terms_of(serving, deployed), options.slowdown, price)


if __name__ == "__main__":
    sys.exit(main())
