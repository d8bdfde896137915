"""Tells Serve's controller what waits: it adds replicas for calls that run and calls that wait at a handle.

    report_waiting         at once, for an engine at zero
    counted_as_waiting     with the handle's next report, for a call that waits in the gate's room

Serve means to do the first: a handle without replicas reports when its first call comes. But it reports what it had
counted before that call, which is nothing, and the count goes out with its next report, up to half a second later.
Reports more often would cost a tenth of a core. The second it cannot know: in its own queue the calls would stand
behind each other whoever made them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from ray.serve._private.router import CurrentLoopRouter, RouterMetricsManager
from ray.serve.handle import DeploymentHandle

REPORTS = 3
APART_S = 0.03
"""A report is dropped while one before it is on its way, and Serve's own is."""


async def report_waiting(handle: DeploymentHandle) -> None:
    """Reports what waits at `handle`, whose call was made just now."""
    metrics = _metrics(handle)
    if metrics is None:
        return
    for _ in range(REPORTS):
        await asyncio.sleep(APART_S)
        if metrics.autoscaling_config is None:  # Serve has not told this router yet, and reports nothing before
            continue
        metrics._add_autoscaling_metrics_point()
        metrics.push_autoscaling_metrics_to_controller()


@contextmanager
def counted_as_waiting(handle: DeploymentHandle) -> Iterator[None]:
    """While the block runs, Serve sees one call more that waits at `handle`."""
    metrics = _metrics(handle)
    if metrics is None:
        yield
        return
    metrics.inc_num_queued_requests()
    try:
        yield
    finally:
        metrics.dec_num_queued_requests()


def _metrics(handle: DeploymentHandle) -> RouterMetricsManager | None:
    """What counts for `handle`; None where that runs in a thread of its own."""
    router = getattr(handle, "_router", None)
    return router._asyncio_router._metrics_manager if isinstance(router, CurrentLoopRouter) else None
