"""All benchmarks one after the other, with settings that take some ten minutes. `make bench` calls it.

    python -m benchmarks.speed                              all, with the peers that need no environment of their own
    python -m benchmarks.speed chat cold_start              these only
    python -m benchmarks.speed --litellm PYTHON --infinity PYTHON

`python -m benchmarks.speed.NAME --help` has each one's settings and says how to make its peer's environment. Results
worth keeping are in `benchmarks/speed/results/`. Leave the machine alone meanwhile: figures are those of a machine that
has nothing else to do, and ratios suffer less than figures when it has.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

SHORT: dict[str, list[str]] = {
    "chat": ["--turns", "1", "--rounds", "3"],
    "cold_start": ["--turns", "1", "--rounds", "3", "--engines", "chat", "speech"],
    "embeddings": ["--in-process", "bfloat16", "float32", "--rounds", "2", "--seconds", "2"],
    "gateway": ["--rounds", "2", "--seconds", "1"],
    "admission": ["--requests", "500"],
    "fairness": ["--rounds", "1", "--seconds", "5"],
    "speech": ["--rounds", "1", "--seconds", "2"],
    "transcription": ["--rounds", "1", "--minutes", "5", "--seconds", "5"],
    "voice_design": ["--orders", "10"],
    "decisions": ["--turns", "1", "--rounds", "5"],
}
"""Arguments of each benchmark."""

PEERS = {"embeddings": "infinity", "gateway": "litellm"}
"""Peers that want an interpreter of their own."""


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SHORT))
    for peer in PEERS.values():
        parser.add_argument(f"--{peer}", metavar="PYTHON", help="interpreter of the peer's environment")
    options = parser.parse_args()
    if unknown := set(options.names) - set(SHORT):
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}; there are {', '.join(SHORT)}")
    failed = [name for name in options.names or SHORT if not run(name, getattr(options, PEERS.get(name, ""), None))]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def run(name: str, peer: str | None) -> bool:
    """Whether it worked. Each has a process of its own: what one imports must not weigh on the next."""
    print(f"\n## {name}\n", flush=True)
    command = [sys.executable, "-m", f"benchmarks.speed.{name}", *SHORT[name]]
    if peer:
        command += [f"--{PEERS[name]}", peer]
    return subprocess.run(command, check=False).returncode == 0


if __name__ == "__main__":
    main()
