"""Upgrade the graph of a Ray cluster to another config file or other code, without a second set of GPUs.

Run it on the head, with the variables of the Ray processes. The new graph starts beside the old one with all engines
at zero, on the same PostgreSQL, Redis and object store; migrate the schema first (`python -m state migrate`). Then new
requests go to the new graph, while the old one finishes its own. An engine of the new graph starts with its first
request, as soon as an idle engine of the old one gives up its card; until then callers wait, as at every cold start.
When the old graph has no call left it is deleted.

Until then, `--rollback` sends requests back to the old graph and deletes the new one. Ctrl-C stops nothing but this
command: both graphs stay, and `--resume` or `--rollback` ends the upgrade.

The new graph is an application with the next number: `parlance`, `parlance-2`, `parlance-3`. Use this command for
every later upgrade, too: `serve deploy` would delete that application before another one answers.

The exit status is 0 when one graph is left, 1 if the upgrade cannot go on, and 130 after Ctrl-C.

examples:
  python -m launch upgrade configs/production.yaml --dry-run
  python -m launch upgrade configs/production.yaml
  python -m launch upgrade configs/production.yaml --code /opt/parlance-0.4 --python /opt/parlance-0.4/.venv/bin/python
  python -m launch upgrade configs/production.yaml --rollback
"""  # noqa: D405

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from contract.base import ProfileError
from launch.environment import StartError
from launch.upgrade.handover import DRAIN_S, Handover
from launch.upgrade.plan import INGRESS, UpgradeError, UpgradePlan, Version
from models.weights.sources import progress
from state.blobs.open import BLOBS_VARIABLE
from state.database.open import open_database
from state.open import DATABASE_VARIABLE, REDIS_VARIABLE, splits

DESCRIPTION, _, EPILOG = __doc__.strip().partition("\n\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `python -m launch upgrade`."""
    options = command_line().parse_args(arguments)
    try:
        app = application(options)
        if not options.rollback:
            require_shared_state()
        from launch.upgrade.cluster import RayCluster

        cluster = RayCluster()
        handover = Handover(cluster, app["name"], app.get("route_prefix", "/"), sleep=interruptible_sleep())
        if options.rollback:
            older, newer = handover.pair()
            hand_over(handover, to=older, away=newer, drain_s=options.drain_s)
            return
        if not options.resume:
            plan = plan_of(cluster, handover.running(), app)
            print("\n".join(plan.lines()))
            if reasons := list(plan.faults()):
                raise UpgradeError("\n".join(reasons))
            if options.dry_run:
                return
            handover.deploy(app)
        with progress("starting the ingress of the new graph", lambda: handover.share):
            handover.until_ready()
        older, newer = handover.pair()
        hand_over(handover, to=newer, away=older, drain_s=options.drain_s)
    except (OSError, StartError, ProfileError) as error:
        sys.exit(f"parlance: {error}")
    except KeyboardInterrupt:
        command = f"python -m launch upgrade {options.config}"
        print(f"\nparlance: both graphs stay; `{command} --resume` or `{command} --rollback` ends it", file=sys.stderr)
        sys.exit(130)


def interruptible_sleep() -> Callable[[float], None]:
    """`time.sleep` that Ctrl-C ends. Elsewhere the second one raises KeyboardInterrupt: a call of Ray may lose it."""
    interrupts = list[int]()

    def note(number: int, _: object) -> None:
        if interrupts:
            raise KeyboardInterrupt
        interrupts.append(number)

    def sleep(seconds: float) -> None:
        time.sleep(seconds)
        if interrupts:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, note)
    return sleep


def hand_over(handover: Handover, to: Version, away: Version, drain_s: float) -> None:
    """Moves clients, waits until no call is left, and deletes what they left."""
    with progress(f"{to.name} takes new requests"):
        handover.move(to, away)
    with progress(f"{away.name} finishes its calls", lambda: handover.share):
        left = handover.until_idle(away, drain_s)
    if left:
        print(f"{away.name} has {left} calls left after {drain_s:.0f} s; it is deleted when they end", file=sys.stderr)
    with progress(f"deleting {away.name}"):
        handover.delete(away)
    print(f"{to.name} answers alone")


def command_line() -> argparse.ArgumentParser:
    """The arguments of `python -m launch upgrade`."""
    parser = argparse.ArgumentParser(
        prog="python -m launch upgrade",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("config", type=Path, help="Serve config file of the new graph")
    add("--dry-run", action="store_true", help="print the plan and what is missing, and change nothing")
    act = parser.add_mutually_exclusive_group()
    act.add_argument("--resume", action="store_true", help="end an upgrade that was interrupted")
    act.add_argument("--rollback", action="store_true", help="back to the old graph, and delete the new one")
    add("--code", type=Path, help="folder of the new code, at the same path on every node (default: the old code)")
    add("--python", type=Path, help="interpreter of the new code, at the same path on every node")
    about = f"seconds that the graph that is left may take for its calls (default: {DRAIN_S:.0f})"
    add("--drain-s", type=float, default=DRAIN_S, help=about)
    return parser


def application(options: argparse.Namespace) -> dict[str, Any]:
    """The application of the config file, with its code. Raises UpgradeError."""
    if not options.config.exists():
        raise UpgradeError(f"there is no config file {options.config}")
    listed = yaml.safe_load(options.config.read_text("utf-8"))["applications"]
    if len(listed) != 1:
        raise UpgradeError(f"{options.config} has {len(listed)} applications; an upgrade moves one graph")
    app: dict[str, Any] = listed[0]
    runtime_env: dict[str, Any] = {}
    if options.code:
        code = options.code.resolve()
        if not (code / "graph.py").exists():
            raise UpgradeError(f"there is no graph.py in {code}")
        path = (str(code), str(code / "deployments/fork_server/site"))
        runtime_env["env_vars"] = {"PYTHONPATH": os.pathsep.join(path)}
    if options.python:
        runtime_env["py_executable"] = str(options.python)
    if runtime_env:
        app["runtime_env"] = app.get("runtime_env", {}) | runtime_env
    return app


def require_shared_state() -> None:
    """Two graphs are at least two ingress replicas, over one schema. Raises UpgradeError."""
    database, redis, blobs = (os.environ.get(name) for name in (DATABASE_VARIABLE, REDIS_VARIABLE, BLOBS_VARIABLE))
    if sentences := splits(database, redis, blobs, replicas=2):
        raise UpgradeError("\n".join(f"old and new graph: {sentence}" for sentence in sentences))

    async def look() -> None:
        await (await open_database(str(database), upgrade=False)).close()

    try:
        asyncio.run(look())
    except ValueError as error:
        raise UpgradeError(str(error)) from None


def plan_of(cluster: Any, old: Version, app: dict[str, Any]) -> UpgradePlan:
    """The plan of an upgrade from `old` to the application of a config file."""
    if app.get("runtime_env"):  # other code, which cannot be imported here: its engines are taken to be the old ones
        deployments = list(old.deployments)
    else:
        from launch.upgrade.cluster import deployments_of

        deployments = deployments_of(app)
    ingress = next(each for each in deployments if each.name == INGRESS)
    engines = tuple(each for each in deployments if each.name != INGRESS)
    return UpgradePlan(old, f"{app['name']}-{old.number + 1}", engines, ingress, cluster.free())
