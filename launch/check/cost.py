"""What a profile takes: GPUs, CPUs, memory and disk, with every engine asleep and with every engine at its largest.

GPUs and CPUs are what Ray reserves. Memory is what it reserves too, where a stanza says so
(`ray_actor_options.memory`); where none does, it is estimated from the weights. Disk is the weights, once on each
machine that runs them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autoscaling.deployment import deployment_options
from autoscaling.policy.options import needs
from contract.catalog import Catalog, Model
from models.weights import store

LIBRARIES_BYTES = 1 << 30
"""What a process takes with its libraries, before it loads anything; an estimate."""

CACHE_BYTES = 1 << 29
"""For what is computed: caches and intermediate results; an estimate."""


@dataclass(frozen=True, slots=True)
class ReplicaCost:
    """One replica of a model, and how many of them there may be."""

    cpus: float
    gpus: float
    memory_bytes: int | None
    fewest: int
    most: int


@dataclass(frozen=True, slots=True)
class Row:
    """What one model takes. `disk_bytes` is None where its weights are not pinned, and 0 where it has none."""

    name: str
    weights: str | None
    replica: ReplicaCost
    disk_bytes: int | None

    @property
    def memory_bytes(self) -> int:
        """What one replica takes: as reserved, or else estimated."""
        if self.replica.memory_bytes is not None:
            return self.replica.memory_bytes
        loaded = 0 if self.replica.gpus or not self.disk_bytes else self.disk_bytes
        return LIBRARIES_BYTES + (CACHE_BYTES + loaded if self.weights else 0)


@dataclass(frozen=True, slots=True)
class Sum:
    """What several rows take together."""

    gpus: float
    cpus: float
    memory_bytes: int


def replica_of(model: Model) -> ReplicaCost:
    """One replica of a model that is set up. Raises DeploymentTableError."""
    table = deployment_options(model)
    scale, takes = table["autoscaling_config"], needs(table)
    return ReplicaCost(
        cpus=takes.get("CPU", 0),
        gpus=takes.get("GPU", 0),
        memory_bytes=int(takes.get("memory", 0)) or None,
        fewest=scale["min_replicas"],
        most=scale["max_replicas"],
    )


def rows(catalog: Catalog) -> Iterator[Row]:
    """One for each model that is set up, in the order of the catalogue. Raises DeploymentTableError, WeightsError."""
    pinned = store.manifest()
    for model in catalog.deployed():
        disk: int | None = 0
        if model.weights:
            stanza = pinned.get(model.weights)
            disk = (stanza.size_bytes or None) if stanza else None
        yield Row(model.deployment, model.weights, replica_of(model), disk)


def at_zero(parts: Sequence[Row]) -> Sum:
    """Every engine asleep that may sleep."""
    return _sum(parts, [row.replica.fewest for row in parts])


def at_most(parts: Sequence[Row]) -> Sum:
    """Every engine at its largest."""
    return _sum(parts, [row.replica.most for row in parts])


def disk_bytes(parts: Sequence[Row]) -> tuple[int, list[str]]:
    """Bytes of all weights that are pinned, each once, and the names of those that are not."""
    sizes = {row.weights: row.disk_bytes for row in parts if row.weights}
    return sum(size or 0 for size in sizes.values()), [str(name) for name, size in sizes.items() if size is None]


def _sum(parts: Sequence[Row], counts: Sequence[int]) -> Sum:
    pairs = list(zip(parts, counts, strict=True))
    return Sum(
        gpus=sum(row.replica.gpus * count for row, count in pairs),
        cpus=sum(row.replica.cpus * count for row, count in pairs),
        memory_bytes=sum(row.memory_bytes * count for row, count in pairs),
    )
