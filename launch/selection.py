"""Which models of a config file this machine runs, and which of them the ingress wakes: written into its `args`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from contract.catalog import Model

GRAPH = "graph:build"
"""Builder of the graph, as Serve config files name it. Those of tests and benchmarks take other arguments."""
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
"""What a container may take; the word `max` where nothing bounds it."""


def leave_out_large(config: dict[str, Any], memory_gib: float) -> list[str]:
    """Leaves out the models that want a machine with more than `memory_gib`. Returns their ids.

    Raises CatalogError.
    """
    from launch.check.faults import plan_of

    left_out = []
    for args in _graphs(config):
        servings = {model.id: model.serving for model in plan_of(args).catalog.deployed() if model.serving}
        large = [id for id, serving in servings.items() if (serving.machine_gib or 0) > memory_gib]
        args["without"] = [*args.get("without", ()), *large]
        left_out += large
    return left_out


def wake_chat(config: dict[str, Any], models: list[Model]) -> None:
    """Has the ingress wake the first chat model once the graph runs, unless the config file says what to wake."""
    chat = [model.id for model in models if model.noun == "chat"]
    for args in _graphs(config):
        if chat:
            args.setdefault("ingress", {}).setdefault("warm", chat[:1])


def woken(config: dict[str, Any]) -> list[str]:
    """Ids of the models that the ingress wakes."""
    return [model for app in config["applications"] for model in app["args"].get("ingress", {}).get("warm", ())]


def memory_gib() -> float:
    """How much memory this machine has, or its container may take of it."""
    import psutil

    there = psutil.virtual_memory().total
    limit = CGROUP_LIMIT.read_text().strip() if CGROUP_LIMIT.is_file() else "max"
    return float(there if limit == "max" else min(there, int(limit))) / 2**30


def _graphs(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The `args` of each graph in a config file."""
    return (app["args"] for app in config["applications"] if app["import_path"] == GRAPH)
