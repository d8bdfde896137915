"""`python -m launch check PROFILE`: whether a profile can work, and what it takes. Starts and fetches nothing."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

import configs
from autoscaling import cluster
from autoscaling.deployment import DeploymentTableError
from launch.check import cost
from launch.check.faults import faults, plan_of
from launch.check.site import Site
from models.weights.store import WeightsError

DESCRIPTION = "Say whether a profile can work, and what it takes. Nothing is started, loaded or fetched."

EPILOG = """It looks at the catalogue, at the Serve config file of the profile, at the weights that are pinned, and at
the environment: run it with the variables that the Ray processes get (PARLANCE_SECRET, PARLANCE_DATABASE_URL,
PARLANCE_REDIS_URL, PARLANCE_BLOBS_URL).

Without --nodes it judges this machine: its GPUs, and the interpreters of engines that have their own. With --nodes it
judges a cluster: interpreters are not looked for, and GPUs are judged only where --gpus says how many there are.

The table shows what Ray reserves for one replica, how few and how many replicas there may be, and the size of the
weights. Memory is an estimate, marked with ~, where a stanza does not reserve it (`ray_actor_options.memory`).
`at zero` is with every engine asleep that may sleep, `at most` with every engine at its largest; the ingress
and Ray itself come on top.

Exit status: 0 where it can work, 1 where it cannot; each reason is a line on standard error.

examples:
  python -m launch check embedded
  python -m launch check production --nodes 4 --gpus 8
  python -m launch check my-profile.yaml"""

HEAD = ("deployment", "replicas", "GPUs", "CPUs", "memory", "weights")


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `python -m launch check`."""
    options = _parser().parse_args(arguments)
    try:
        config: dict[str, Any] = yaml.safe_load(_file(options.profile).read_text("utf-8"))
        (plan,) = (plan_of(app["args"]) for app in config["applications"])
        found = list(faults(plan, _site(options)))
        reasons = [f"{options.profile}: {reason}" for reason in found]
        table = _table(list(cost.rows(plan.catalog)))
    except (OSError, configs.CatalogError, WeightsError) as error:
        sys.exit(f"{options.profile}: {error}")
    except DeploymentTableError:
        sys.exit("\n".join(reasons))
    print(table)
    if reasons:
        sys.exit("\n".join(["", *reasons]))
    print(f"\n{options.profile} can work.")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m launch check",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    profiles = ", ".join(configs.PROFILES)
    parser.add_argument("profile", metavar="PROFILE", help=f"one of {profiles}; or a Serve config file")
    parser.add_argument("--nodes", type=_positive, help="machines of a cluster that it is for")
    parser.add_argument("--gpus", type=float, help="GPUs of all of them, those included that an autoscaler may add")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("a cluster has one machine at least")
    return number


def _file(profile: str) -> Path:
    if profile.endswith((".yaml", ".yml")):
        return Path(profile)
    if profile not in configs.PROFILES:
        raise configs.CatalogError(f"there is no such profile; there are {', '.join(configs.PROFILES)}")
    return configs.FOLDER / f"{profile}.yaml"


def _site(options: argparse.Namespace) -> Site:
    if options.nodes is None:
        return Site(os.environ, gpus=cluster.gpus_here() if options.gpus is None else options.gpus)
    return Site(os.environ, nodes=options.nodes, gpus=options.gpus, is_here=False)


def _table(rows: Sequence[cost.Row]) -> str:
    lines = [_line(row) for row in rows]
    disk, unknown = cost.disk_bytes(rows)
    size = f"{'at least ' if unknown else ''}{_bytes(disk)}"
    for name, total in (("at zero", cost.at_zero(rows)), ("at most", cost.at_most(rows))):
        lines.append((name, "", f"{total.gpus:g}", f"{total.cpus:g}", f"~{_bytes(total.memory_bytes)}", size))
    text = _aligned([HEAD, *lines])
    if unknown:
        text += f"\n\nNot pinned, so of unknown size: {', '.join(unknown)}."
    return text


def _line(row: cost.Row) -> tuple[str, ...]:
    replica = row.replica
    memory = ("" if replica.memory_bytes else "~") + _bytes(row.memory_bytes)
    disk = "?" if row.disk_bytes is None else _bytes(row.disk_bytes) if row.weights else "-"
    return (row.name, f"{replica.fewest}-{replica.most}", f"{replica.gpus:g}", f"{replica.cpus:g}", memory, disk)


def _bytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB"


def _aligned(lines: Iterable[Sequence[str]]) -> str:
    """Columns as wide as their widest cell; all but the first to the right."""
    cells = [tuple(line) for line in lines]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    )
