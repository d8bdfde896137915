"""A graph of its own to attack, with two organisations on an ordinary plan; gone when its block ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks.servers import customer, parlance, working_folder

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
    with working_folder("attacks-") as folder, parlance(folder, config) as server:
        environment = {"PARLANCE_HOME": str(next(folder.glob("home-*")))}
        yield Graph(server.url, *(customer(environment, name, PLAN) for name in ("attacker", "bystander")))
