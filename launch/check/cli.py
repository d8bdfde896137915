"""Check whether a profile can work, and show what it needs. Nothing is started, loaded or fetched.

The check reads the catalogue, the Serve config file of the profile, the pinned weights and
the environment: run it with the variables of the Ray processes (PARLANCE_SECRET, PARLANCE_DATABASE_URL,
PARLANCE_REDIS_URL, PARLANCE_BLOBS_URL).

Without --nodes it checks this machine: its GPUs, the interpreters of engines that have their own, and recordings of
voices. With --nodes it checks a cluster: it does not look for interpreters, checks GPUs only if --gpus gives their
number, and recordings only if --home names the folder of all nodes.

The table shows what Ray reserves for one replica, the smallest and largest number of replicas, and the size of the
weights. Memory marked with ~ is an estimate, because the stanza reserves none (`ray_actor_options.memory`).
The second table shows what the scaling policy will do: how long a start takes until one was measured, the predicted
wait that adds a replica, and for how long an idle engine stays. Within these bounds it learns from the gaps between
requests (docs/what-warmth-costs.md).
`at zero` counts the engines that never scale to zero, `at most` all engines with all replicas; the ingress
and Ray itself need more on top.

The exit status is 0 if the profile can work and 1 if it cannot; each reason is a line on standard error.

examples:
  python -m launch check embedded
  python -m launch check production --nodes 4 --gpus 8 --home /shared
  python -m launch check my-profile.yaml
"""  # noqa: D405

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

import configs
from autoscaling.deployment import DeploymentTableError
from autoscaling.ray_internals import start
from launch.check import cost, scaling
from launch.check.faults import Site, faults, plan_of
from launch.selection import fit_gpu, gpu_gib
from models.weights.store import WeightsError

DESCRIPTION, _, EPILOG = __doc__.strip().partition("\n\n")
HEAD = ("deployment", "replicas", "GPUs", "CPUs", "memory", "weights")


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `python -m launch check`."""
    options = command_line().parse_args(arguments)
    is_here = options.nodes is None
    try:
        config: dict[str, Any] = yaml.safe_load(_file(options.profile).read_text("utf-8"))
        left_out = fit_gpu(config, gib) if is_here and (gib := gpu_gib()) else []
        (args,) = (app["args"] for app in config["applications"])
        plan = plan_of(args)
        gpus = start.gpus_here() if is_here and options.gpus is None else options.gpus
        site = Site(os.environ, options.nodes or 1, gpus, is_here, options.home)
        reasons = [f"{options.profile}: {reason}" for reason in faults(plan, site)]
        rows = list(cost.rows(plan.catalog))
        scales, remarks = list(scaling.rows(plan.catalog)), list(scaling.remarks(plan.catalog))
    except (OSError, configs.CatalogError, WeightsError) as error:
        sys.exit(f"{options.profile}: {error}")
    except DeploymentTableError:
        sys.exit("\n".join(reasons))
    print(_table(rows))
    if args.get("scaling", {}).get("by") != "serve":
        print("\n" + _aligned([scaling.HEAD, *scales]))
    if left_out:
        remarks.append(f"Left out, because the GPU of this machine has no room for them: {', '.join(left_out)}")
    most = cost.at_most(rows).gpus
    if options.gpus is not None and most > options.gpus:
        remarks.append(
            f"All engines with all replicas want {most:g} GPUs, and there are {options.gpus:g}: idle ones make room "
            "for those that requests wait for"
        )
    if not reasons:
        remarks.append(f"{options.profile} can work")
    for remark in remarks:
        print(f"\n{remark}.")
    if reasons:
        sys.exit("\n".join(["", *reasons]))


def command_line() -> argparse.ArgumentParser:
    """The arguments of `python -m launch check`."""
    parser = argparse.ArgumentParser(
        prog="python -m launch check",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    profiles, add = ", ".join(configs.PROFILES), parser.add_argument
    add("profile", metavar="PROFILE", help=f"one of {profiles}, or a Serve config file")
    add("--nodes", type=_positive, help="number of machines of the cluster")
    add("--gpus", type=float, help="GPUs of the whole cluster, including those that an autoscaler may add")
    add("--home", type=Path, metavar="FOLDER", help="the PARLANCE_HOME of all nodes, as it is seen here")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("a cluster has at least one machine")
    return number


def _file(profile: str) -> Path:
    if profile.endswith((".yaml", ".yml")):
        return Path(profile)
    if profile not in configs.PROFILES:
        raise configs.CatalogError(f"there is no such profile; the profiles are {', '.join(configs.PROFILES)}")
    return configs.FOLDER / f"{profile}.yaml"


def _table(rows: Sequence[cost.Row]) -> str:
    """Needs of each model and of all, and the weights of unknown size."""
    lines = [HEAD]
    for row in rows:
        takes, count = row.replica, f"{row.replica.fewest}-{row.replica.most}"
        memory = ("" if takes.memory_bytes else "~") + _bytes(row.memory_bytes)
        size = "?" if row.disk_bytes is None else _bytes(row.disk_bytes) if row.weights else "-"
        lines.append((row.name, count, f"{takes.gpus:g}", f"{takes.cpus:g}", memory, size))
    disk, unknown = cost.disk_bytes(rows)
    size = f"{'at least ' if unknown else ''}{_bytes(disk)}"
    for name, total in (("at zero", cost.at_zero(rows)), ("at most", cost.at_most(rows))):
        lines.append((name, "", f"{total.gpus:g}", f"{total.cpus:g}", f"~{_bytes(total.memory_bytes)}", size))
    remark = f"\n\nThese weights are not pinned, so their size is unknown: {', '.join(unknown)}."
    return _aligned(lines) + (remark if unknown else "")


def _bytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB"


def _aligned(lines: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell; all but the first to the right."""
    first, *others = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join((name.ljust(first), *map(str.rjust, cells, others))).rstrip() for name, *cells in lines)
