"""A graph of its own to attack, with two organisations on an ordinary plan; gone when its block ends."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.servers import ROOT, free_port, running, working_folder

PLAN = "pro"


@dataclass(frozen=True, slots=True)
class Graph:
    """Where it answers, and a key with every scope of each organisation."""

    url: str
    key: str
    other_key: str


@contextmanager
def graph(config: str) -> Iterator[Graph]:
    """The graph of a Serve config as `make serve` runs it, on loopback. Its log is lost with it, unless it fails."""
    weights = Path(os.environ.get("PARLANCE_HOME", ROOT / "var")).resolve() / "weights"
    with working_folder("attacks-") as home:
        weights.mkdir(parents=True, exist_ok=True)
        (home / "weights").symlink_to(weights)
        environment = {"PARLANCE_HOME": str(home)}
        key, other_key = _customer("attacker", environment), _customer("bystander", environment)
        url = f"http://127.0.0.1:{(port := free_port())}"
        command = [sys.executable, "-m", "launch", config, "--port", str(port)]
        with running(command, f"{url}/healthz", home / "log", environment, worst_status=200):
            yield Graph(url, key, other_key)


def _customer(name: str, environment: dict[str, str]) -> str:
    """A key of a new organisation."""

    def state(*arguments: str) -> str:
        command = [sys.executable, "-m", "state", *arguments]
        done = subprocess.run(
            command, cwd=ROOT, env=os.environ | environment, stdout=subprocess.PIPE, text=True, check=True
        )
        return done.stdout.strip()

    state("org", "create", name, "--plan", PLAN)
    return state("key", "create", "--org", name, "--scopes", "all")
