"""What a profile takes: GPUs, CPUs, memory and disk, with every engine asleep and with every engine at its largest.

GPUs and CPUs are what Ray reserves. Memory is what it reserves too, where a stanza says so
(`ray_actor_options.memory`); where none does, it is estimated from the weights. Disk is the weights, once on each
machine that runs them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autoscaling.deployment import deployment_options
from contract.catalog import Catalog, Model
from models.weights import store

LIBRARIES_BYTES = 1 << 30
"""Of a process with its libraries, before it loads anything; an estimate."""

CACHE_BYTES = 1 << 29
"""For what is computed: caches and intermediate results; an estimate."""


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica of a model, and how many of them there may be."""

    cpus: float
    gpus: float
    memory_bytes: int | None
    fewest: int
    most: int


@dataclass(frozen=True, slots=True)
class Row:
    """What one model takes.

    Attributes:
        disk_bytes: None where its weights are not pinned, and 0 where it has none.
        is_loaded: its replicas hold the weights; those that read through another model only their tokenizer.
    """

    name: str
    weights: str | None
    replica: Replica
    disk_bytes: int | None
    is_loaded: bool = True

    @property
    def memory_bytes(self) -> int:
        """Of one replica: reserved, else estimated."""
        if self.replica.memory_bytes is not None:
            return self.replica.memory_bytes
        loaded = 0 if self.replica.gpus or not self.disk_bytes else self.disk_bytes
        return LIBRARIES_BYTES + (CACHE_BYTES + loaded if self.weights and self.is_loaded else 0)


@dataclass(frozen=True, slots=True)
class Sum:
    """What several rows take together."""

    gpus: float
    cpus: float
    memory_bytes: int


def replica_of(model: Model) -> Replica:
    """One replica of a model that is set up. Raises DeploymentTableError."""
    table = deployment_options(model)
    actor, scale = table["ray_actor_options"], table["autoscaling_config"]
    # A replica in a placement group takes the whole group: the actor lies in its first bundle.
    bundles = table.get("placement_group_bundles")
    held = bundles or [{"CPU": actor["num_cpus"], "GPU": actor.get("num_gpus", 0), "memory": actor.get("memory", 0)}]
    memory = sum(bundle.get("memory", 0) for bundle in held)
    return Replica(
        cpus=sum(bundle.get("CPU", 0) for bundle in held),
        gpus=sum(bundle.get("GPU", 0) for bundle in held),
        memory_bytes=int(memory) or None,
        fewest=scale["min_replicas"],
        most=scale["max_replicas"],
    )


def rows(catalog: Catalog) -> Iterator[Row]:
    """One for each model that is set up, in the order of the catalogue. Raises DeploymentTableError, WeightsError."""
    pinned = store.manifest()
    for model in catalog.deployed():
        name = model.serving.weights if model.serving else None
        stanza = pinned.get(name) if name else None
        disk = (stanza.size_bytes or None if stanza else None) if name else 0
        through = model.serving.reads_through if model.serving else None
        yield Row(model.deployment, name, replica_of(model), disk, is_loaded=not through)


def at_zero(parts: Sequence[Row]) -> Sum:
    """Every engine asleep that may sleep."""
    return _sum(parts, [row.replica.fewest for row in parts])


def at_most(parts: Sequence[Row]) -> Sum:
    """Every engine at its largest."""
    return _sum(parts, [row.replica.most for row in parts])


def disk_bytes(parts: Sequence[Row]) -> tuple[int, list[str]]:
    """Bytes of all weights that are pinned, each once, and the names of those that are not."""
    known = {row.weights: row.disk_bytes for row in parts if row.weights}
    return sum(size or 0 for size in known.values()), [str(name) for name, size in known.items() if size is None]


def _sum(parts: Sequence[Row], counts: Sequence[int]) -> Sum:
    pairs = list(zip(parts, counts, strict=True))
    return Sum(
        gpus=sum(row.replica.gpus * count for row, count in pairs),
        cpus=sum(row.replica.cpus * count for row, count in pairs),
        memory_bytes=sum(row.memory_bytes * count for row, count in pairs),
    )
