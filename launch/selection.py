"""Which models of a config file this machine runs, and which of them the ingress wakes: written into its `args`."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import configs
from contract.catalog import Model, Serving

GRAPH = "graph:build"
"""Builder of the graph, as Serve config files name it. Those of tests and benchmarks take other arguments."""
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
"""What a container may take; the word `max` where nothing bounds it."""
GPU_MEMORY = ("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits")
"""Asks the driver, which brings the command, for the MiB of each GPU."""
SPARE_GPU_GIB = 0.5
"""For a screen, and for what the driver keeps to itself."""


def leave_out_large(config: dict[str, Any], memory_gib: float) -> list[str]:
    """Leaves out the models that want a machine with more than `memory_gib`. Returns their ids.

    Raises CatalogError.
    """
    left_out = []
    for args in _graphs(config):
        large = [id for id, serving in _servings(args).items() if (serving.machine_gib or 0) > memory_gib]
        args["without"] = [*args.get("without", ()), *large]
        left_out += large
    return left_out


def fit_gpu(config: dict[str, Any], gpu_gib: float) -> list[str]:
    """Leaves out the models that a GPU with `gpu_gib` has no room for beside smaller ones. Returns their ids.

    Only models whose stanza says what they take (`Serving.gpu_gib`) are judged. Raises CatalogError.
    """
    left_out = []
    for args in _graphs(config):
        takes = {id: serving.gpu_gib for id, serving in _servings(args).items() if serving.gpu_gib}
        smallest_first = sorted(takes, key=takes.__getitem__)
        sums = accumulate(takes[id] for id in smallest_first)
        large = [id for id, taken in zip(smallest_first, sums, strict=True) if taken > gpu_gib - SPARE_GPU_GIB]
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


def gpu_gib() -> float | None:
    """The memory of the first GPU of this machine; None where there is none, or no driver."""
    if not shutil.which(GPU_MEMORY[0]):
        return None
    reply = subprocess.run(GPU_MEMORY, capture_output=True, text=True, check=False)
    return float(reply.stdout.split()[0]) / 2**10 if reply.returncode == 0 and reply.stdout.split() else None


def _servings(args: dict[str, Any]) -> dict[str, Serving]:
    """How each model runs that a graph with `args` would set up. Raises CatalogError."""
    catalog = configs.load(args.get("profile", "embedded")).without(args.get("without", ()))
    return {model.id: model.serving for model in catalog.deployed() if model.serving}


def _graphs(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The `args` of each graph in a config file."""
    return (app["args"] for app in config["applications"] if app["import_path"] == GRAPH)
