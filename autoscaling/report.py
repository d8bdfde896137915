"""Tells Serve's controller at once that a call waits for an engine at zero.

Serve means to: a handle without replicas reports when its first call comes. But it reports what it had counted before
that call, which is nothing, and the count goes out with its next report, up to half a second later. Reports more often
would cost a tenth of a core. So this takes a count and reports it, by private names of Ray, which
tests/cluster/test_router_contract.py holds on to.
"""

from __future__ import annotations

import asyncio

from ray.serve._private.router import CurrentLoopRouter
from ray.serve.handle import DeploymentHandle

REPORTS = 3
APART_S = 0.03
"""A report is dropped while one before it is on its way, and Serve's own is."""


async def report_waiting(handle: DeploymentHandle) -> None:
    """Reports what waits at `handle`, whose call was made just now."""
    router = getattr(handle, "_router", None)
    if not isinstance(router, CurrentLoopRouter):  # one of a thread of its own
        return
    metrics = router._asyncio_router._metrics_manager
    for _ in range(REPORTS):
        await asyncio.sleep(APART_S)
        if metrics.autoscaling_config is None:  # Serve has not told this router yet, and reports nothing before
            continue
        metrics._add_autoscaling_metrics_point()
        metrics.push_autoscaling_metrics_to_controller()
