"""Where a profile is to run, as far as that is known."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from autoscaling import cluster


@dataclass(frozen=True, slots=True)
class Site:
    """A machine or a cluster.

    Attributes:
        environ: environment of the Ray processes.
        nodes: machines.
        gpus: of all machines together, those included that an autoscaler may add; None where nobody knows.
        is_here: whether all replicas start on this machine, so that their interpreters can be looked for.
    """

    environ: Mapping[str, str]
    nodes: int = 1
    gpus: float | None = None
    is_here: bool = True

    @classmethod
    def of_process(cls) -> Site:
        """The cluster that this process is part of, else this machine.

        How far a cluster grows is known to its autoscaler alone, so its GPUs are not judged.
        """
        nodes = cluster.nodes()
        if nodes is None:
            return cls(os.environ, gpus=cluster.gpus_here())
        return cls(os.environ, nodes=nodes, is_here=False)
