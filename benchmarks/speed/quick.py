"""What has slid: a short run of the benchmarks that have a comparison, beside the ratios of `ratios.toml`.

    make bench QUICK=1
    python -m benchmarks.speed.quick                  all, in some six minutes on two cores
    python -m benchmarks.speed.quick gateway chat     these only
    python -m benchmarks.speed.quick --keep           writes what it measures into ratios.toml

A ratio divides ours by something that runs on the same machine in the same run, and is compared with those of the same
kind of processor. It varies by a tenth from run to run: a line that says `slid` is a reason to run that benchmark as a
whole, and no verdict. The exit status is 0 whatever slid, 1 where one failed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.servers import printed_by, working_folder

COMMITTED = Path(__file__).parent / "ratios.toml"
BENCHMARKS = ("gateway", "chat", "decisions", "embeddings", "speech")
"""Modules of this folder with a function `ratios`."""

TOLERANCE = 0.15
"""By how much a ratio may be worse before it counts as slid."""

KINDS = {"AMX": "amx_bf16", "AVX-512": "avx512_bf16", "AVX2": "avx2"}
"""Kinds of processors by the feature that torch reports, the newest first."""

Ratios = Mapping[str, float]
"""By what is measured. What ends with `RATE` should be high, everything else is time and should be low."""
RATE = "rate"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed.quick",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # argparse holds the empty list, which stands for no name, against the choices, too.
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[*BENCHMARKS, []], help=", ".join(BENCHMARKS))
    parser.add_argument("--keep", action="store_true", help="write the ratios of this run into ratios.toml")
    parser.add_argument("--one", choices=BENCHMARKS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        with working_folder(f"{options.one}-") as folder:
            print(json.dumps(import_module(f"benchmarks.speed.{options.one}").ratios(folder)))
        return
    kinds = tomllib.loads(COMMITTED.read_text("utf-8"))
    kind = kind_of(features())
    committed = kinds.get(kind, {})
    print(f"{kind}{'' if committed else ': no ratios are committed yet'}\n\n{HEAD}")
    results: dict[str, Ratios] = {}
    for name in options.names or BENCHMARKS:
        # Its imports must not weigh on the next: it is a process.
        with suppress(subprocess.CalledProcessError):
            results[name] = printed_by("benchmarks.speed.quick", "--one", name)
            print(rows(name, results[name], committed.get(name, {})), flush=True)
    print(f"load average {os.getloadavg()[0]:.1f}")
    if options.keep:
        COMMITTED.write_text(text_of(kinds | {kind: committed | results}), "utf-8")
    if failed := [name for name in options.names or BENCHMARKS if name not in results]:
        sys.exit(f"failed: {', '.join(failed)}; `python -m benchmarks.speed NAME` runs one alone")


def features() -> Mapping[str, Any]:
    """Returns the features of this processor by torch's names."""
    import torch

    reported: Mapping[str, Any] = torch.cpu.get_capabilities()
    return reported


def kind_of(features: Mapping[str, Any]) -> str:
    """Returns the kind of a processor with these features."""
    return next((kind for kind, feature in KINDS.items() if features.get(feature)), "other")


HEAD = "| benchmark | ratio | committed | now | |\n|---|---|---|---|---|"


def rows(name: str, now: Ratios, committed: Ratios) -> str:
    return "\n".join(
        f"| {name} | {ratio} | {_number(committed.get(ratio))} | {value:.2f} | "
        f"{verdict(ratio, value, committed.get(ratio))} |"
        for ratio, value in now.items()
    )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def verdict(ratio: str, now: float, committed: float | None) -> str:
    if committed is None:
        return "new"
    gain = now / committed if ratio.endswith(RATE) else committed / now
    if gain < 1 - TOLERANCE:
        return f"**slid** by {1 - gain:.0%}"
    if gain > 1 + TOLERANCE:
        return f"better by {gain - 1:.0%}"
    return "as before"


def text_of(kinds: Mapping[str, Mapping[str, Ratios]]) -> str:
    lines = ["# Ours divided by the other's, measured by `python -m benchmarks.speed.quick --keep` on two cores."]
    for kind, benchmarks in kinds.items():
        for name, each in benchmarks.items():
            lines += ["", f"[{kind}.{name}]", *(f'"{ratio}" = {value:.2f}' for ratio, value in each.items())]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
