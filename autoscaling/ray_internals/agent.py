"""What we change in the agent of a node, a process that Ray starts: on a node that is alone, metrics stay there, too.

It knows 127.0.0.1 as an address that stays on the machine, but not 127.0.0.2, which such a node has.
"""

from __future__ import annotations

import os

from autoscaling.ray_internals.replica import LOOPBACK_VARIABLE

METRICS_HOST = "127.0.0.1"


def keep_metrics_local() -> None:
    """Called before the agent's own code. Acts only if PARLANCE_LOOPBACK is set."""
    if not os.environ.get(LOOPBACK_VARIABLE):
        return
    from ray._private import prometheus_exporter

    options = prometheus_exporter.Options

    def local(address: str, **others: object) -> object:
        return options(address=METRICS_HOST, **others)

    prometheus_exporter.Options = local
