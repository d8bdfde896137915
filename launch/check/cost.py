"""Needs of a profile: GPUs, CPUs, memory and disk, with every engine asleep and with every engine at its largest.

GPUs and CPUs are those that Ray reserves. So is memory, where a stanza says so (`ray_actor_options.memory`); where none
does, it is estimated from the weights. Disk is the weights, once on each machine that runs them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from autoscaling.deployment import deployment_options
from autoscaling.policy.options import needs
from contract.catalog import Catalog, Model
from models.weights import store

LIBRARIES_BYTES = 1 << 30
"""For a process with its libraries, before it loads anything; an estimate."""

CACHE_BYTES = 1 << 29
"""For caches and intermediate results; an estimate."""


class ReplicaCost(NamedTuple):
    """One replica of a model, and the smallest and largest number of them."""

    cpus: float
    gpus: float
    memory_bytes: int | None
    fewest: int
    most: int


class Row(NamedTuple):
    """Needs of one model. `disk_bytes` is None where its weights are not pinned, and 0 where it has none."""

    name: str
    weights: str | None
    replica: ReplicaCost
    disk_bytes: int | None

    @property
    def memory_bytes(self) -> int:
        """Memory of one replica: as reserved, or else estimated."""
        if self.replica.memory_bytes is not None:
            return self.replica.memory_bytes
        loaded = 0 if self.replica.gpus else self.disk_bytes or 0
        return LIBRARIES_BYTES + (CACHE_BYTES + loaded if self.weights else 0)


class Sum(NamedTuple):
    """Needs of several rows together."""

    gpus: float
    cpus: float
    memory_bytes: int


def replica_of(model: Model) -> ReplicaCost:
    """One replica of a model that is set up. Raises DeploymentTableError."""
    table = deployment_options(model)
    scale, takes = table["autoscaling_config"], needs(table)
    memory = int(takes.get("memory", 0)) or None
    return ReplicaCost(takes.get("CPU", 0), takes.get("GPU", 0), memory, scale["min_replicas"], scale["max_replicas"])


def rows(catalog: Catalog) -> Iterator[Row]:
    """One for each model that is set up, in the order of the catalogue. Raises DeploymentTableError, WeightsError."""
    pinned = store.manifest()
    for model in catalog.deployed():
        stanza = pinned.get(model.weights or "")
        disk = (stanza and stanza.size_bytes) or (None if model.weights else 0)
        yield Row(model.deployment, model.weights, replica_of(model), disk)


def at_zero(parts: Sequence[Row]) -> Sum:
    """Every engine asleep that may sleep."""
    return _sum((row, row.replica.fewest) for row in parts)


def at_most(parts: Sequence[Row]) -> Sum:
    """Every engine at its largest."""
    return _sum((row, row.replica.most) for row in parts)


def disk_bytes(parts: Sequence[Row]) -> tuple[int, list[str]]:
    """Bytes of all weights that are pinned, each once, and the names of those that are not."""
    sizes = {row.weights: row.disk_bytes for row in parts if row.weights}
    return sum(size or 0 for size in sizes.values()), [name for name, size in sizes.items() if size is None]


def _sum(parts: Iterable[tuple[Row, int]]) -> Sum:
    each = [(row.replica.gpus * n, row.replica.cpus * n, row.memory_bytes * n) for row, n in parts]
    return Sum(*map(sum, zip((0, 0, 0), *each, strict=True)))
