"""Whether every model of production runs on the GPU of this machine: one after the other, one request of each kind.

    python -m benchmarks.speed.gpu                       all of them; downloads what is not there, some 200 GB
    python -m benchmarks.speed.gpu bge-m3 decision-v1    these only
    python -m benchmarks.speed.gpu --profile my-profile  those of another profile

It shows that the true weights load with the arguments of the stanza, in a GPU's types and with its kernels, and fit.
Each model has a process of its own, with its stanza, adapter and interpreter (`py_executable`), without Ray. Printed
are seconds until it has loaded, memory of the GPU that is taken then (vLLM takes what its stanza gives it), and for
each request its seconds and how much came of it. One that fails is named with its last lines, and the exit status is 1.

Before the first run, `python -m launch weights lock production`. Stored voices of `qwen3-tts` and `cosyvoice-3` need
their recordings (docs/engines.md), `voxtral-mini-tts` a key.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table

import configs
from benchmarks.speed.asks import ASKS, Asked
from contract.catalog import Model

ROOT = Path(__file__).parents[2]
GIB = 1 << 30
LAST_LINES = 15
console = Console()


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point: 0 if all of them answered."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="MODEL", help="an id, or a deployment: `speech-qwen3-tts`")
    parser.add_argument("--profile", default="production", choices=configs.PROFILES)
    parser.add_argument("--recording", type=Path, metavar="FILE", help="speech for transcription models, not a tone")
    parser.add_argument("--only", metavar="DEPLOYMENT", help=argparse.SUPPRESS)  # what the child is given
    options = parser.parse_args(arguments)
    by_deployment = {model.deployment: model for model in configs.load(options.profile).deployed()}
    if options.only:
        print(json.dumps(asyncio.run(shown(by_deployment[options.only], options.recording))))
        return 0
    selection = chosen(by_deployment, options.names)
    if unknown := set(options.names) - {name for model in selection for name in (model.id, model.deployment)}:
        parser.error(f"profile `{options.profile}` has no model `{min(unknown)}`; `python -m launch check` names them")
    if not gpu_name():
        sys.exit("torch finds no GPU here, and this shows nothing without one: run it where `nvidia-smi` lists a GPU")
    return run(selection, options)


def chosen(by_deployment: dict[str, Model], names: Sequence[str]) -> list[Model]:
    """Those of `by_deployment` that are named by id or deployment; all where none is."""
    return [model for name, model in by_deployment.items() if not names or {name, model.id} & set(names)]


def gpu_name() -> str | None:
    """Of the first GPU; None where there is none."""
    import torch

    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else None


def run(selection: Sequence[Model], options: argparse.Namespace) -> int:
    """Each of `selection` in a process of its own; a table at the end."""
    console.print(f"{gpu_name()}, {len(selection)} models")
    table = Table(Column("model", no_wrap=True), "loads, s", "GPU, GiB", "request", "s", "result")
    failed = []
    for model in selection:
        console.print(f"{model.deployment} …")
        facts = asked_of(model, options)
        if error := facts.get("error"):
            failed.append(model.deployment)
            console.print(f"[red]{model.deployment} failed[/red]\n{error}", highlight=False)
            continue
        head = [model.deployment, f"{facts['load_s']:.0f}", f"{facts['memory_bytes'] / GIB:.1f}"]
        for answer in facts["asked"]:
            table.add_row(*head, answer["what"], f"{answer['seconds']:.2f}", answer["result"])
            head = ["", "", ""]
    console.print(table)
    if failed:
        console.print(f"failed: {', '.join(failed)}")
    return int(bool(failed))


def asked_of(model: Model, options: argparse.Namespace) -> dict[str, Any]:
    """What a process of its own saw of `model`; or `error`, the last lines that it wrote."""
    environment = model.setup.deployment.get("ray_actor_options", {}).get("runtime_env", {})
    command = [environment.get("py_executable", sys.executable), "-m", "benchmarks.speed.gpu"]
    command += ["--profile", options.profile, "--only", model.deployment]
    if options.recording:
        command += ["--recording", str(options.recording.absolute())]
    variables = os.environ | environment.get("env_vars", {})
    try:
        child = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)
    except OSError as error:
        return {"error": f"{command[0]}: {error.strerror}"}
    lines = child.stdout.splitlines()
    if child.returncode or not lines:
        return {"error": "\n".join((child.stderr.splitlines() or lines)[-LAST_LINES:])}
    facts: dict[str, Any] = json.loads(lines[-1])
    return facts


async def shown(model: Model, recording: Path | None) -> dict[str, Any]:
    """Loads `model` and asks it, in this process."""
    import torch

    import models

    # Of the whole device: vLLM has processes of its own.
    free_bytes, _ = torch.cuda.mem_get_info()
    started = time.perf_counter()
    with closing(models.load(model)) as engine:
        load_s = time.perf_counter() - started
        taken_bytes = free_bytes - torch.cuda.mem_get_info()[0]
        answers: list[Asked] = await ASKS[model.noun](engine, model, recording)
    return {"load_s": load_s, "memory_bytes": taken_bytes, "asked": [answer._asdict() for answer in answers]}


if __name__ == "__main__":
    sys.exit(main())
