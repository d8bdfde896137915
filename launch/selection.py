"""Models of a config file that this machine runs, and those that the ingress wakes: written into its `args`."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import configs
from contract.catalog import Model, Serving

GRAPH = "graph:build"
"""Builder of the graph, as Serve config files name it. Those of tests and benchmarks take other arguments."""
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
"""Bytes that a container may take; the word `max` where nothing bounds it."""
GPU_MEMORY = ("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits")
"""Asks the driver, which brings the command, for the MiB of each GPU."""
SPARE_GPU_GIB = 0.5
"""For a screen, and for what the driver keeps to itself."""


def leave_out_large(config: dict[str, Any], memory_gib: float) -> list[str]:
    """Leaves out the models that want a machine with more than `memory_gib`. Returns their ids.

    Raises CatalogError.
    """

    def large(servings: dict[str, Serving]) -> list[str]:
        return [id for id, serving in servings.items() if (serving.machine_gib or 0) > memory_gib]

    return _leave_out(config, large)


def fit_gpu(config: dict[str, Any], gpu_gib: float) -> list[str]:
    """Leaves out the models that a GPU with `gpu_gib` has no room for beside smaller ones. Returns their ids.

    Only models with a stanza that says what they take (`Serving.gpu_gib`) are judged. Raises CatalogError.
    """

    def large(servings: dict[str, Serving]) -> list[str]:
        takes = sorted(((id, s.gpu_gib) for id, s in servings.items() if s.gpu_gib), key=lambda pair: pair[1])
        sums = accumulate(gib for _, gib in takes)
        return [id for (id, _), taken in zip(takes, sums, strict=True) if taken > gpu_gib - SPARE_GPU_GIB]

    return _leave_out(config, large)


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
    """Memory of this machine, or the part of it that its container may take."""
    import psutil

    limit = CGROUP_LIMIT.read_text() if CGROUP_LIMIT.is_file() else "max"
    return min(float(psutil.virtual_memory().total), float(limit.replace("max", "inf"))) / 2**30


def gpu_gib() -> float | None:
    """The memory of the first GPU of this machine; None where it has none of its own, or there is no GPU or driver."""
    if not shutil.which(GPU_MEMORY[0]):
        return None
    reply = subprocess.run(GPU_MEMORY, capture_output=True, text=True, check=False)
    first = reply.stdout.split()[:1] if reply.returncode == 0 else ()
    return next((int(mib) / 2**10 for mib in first if mib.isdecimal()), None)  # `[N/A]` where it shares the machine's


def _leave_out(config: dict[str, Any], choose: Callable[[dict[str, Serving]], list[str]]) -> list[str]:
    """Leaves out the models that `choose` picks of those that each graph would set up. Returns their ids."""
    left_out = []
    for args in _graphs(config):
        catalog = configs.load(args.get("profile", "embedded")).without(args.get("without", ()))
        large = choose({model.id: model.serving for model in catalog.deployed() if model.serving})
        args["without"] = [*args.get("without", ()), *large]
        left_out += large
    return left_out


def _graphs(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The `args` of each graph in a config file."""
    return (app["args"] for app in config["applications"] if app["import_path"] == GRAPH)
