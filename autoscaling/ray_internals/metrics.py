"""Reports to Serve's controller what waits: it adds replicas for calls that run and calls that wait at a handle.

    hurried                at once, for an engine at zero, and has the controller act on it at once
    counted_as_waiting     with the handle's next report, for a call that waits in the gate
    skip_unchanged_reports a handle at which nothing happens is silent
    record_later           what is measured goes to Ray's exporter in one go

Serve means to do the first: a handle without replicas reports when its first call comes. But it reports what it had
counted before that call, which is nothing, and the count goes out with its next report, up to two seconds later. The
controller then looks once a second, and a start takes three looks: to decide, to start, to see that the replica runs.
More reports and looks would cost a tenth of a core while no request comes; so a call that waits for a start turns the
controller's loop. The second it cannot know: in its own queue the calls would wait in line, and organisations would not
take turns. The third costs it nothing: of a handle that says nothing for ten seconds it takes nothing to wait or run.
The fourth is for requests: Ray's exporter lets go of the interpreter's lock for each value, and Serve and we have seven
of one request. Where another thread waits for the lock, each is a millisecond.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Hashable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partialmethod
from weakref import WeakSet

from ray.exceptions import RayError
from ray.serve._private.router import CurrentLoopRouter, RouterMetricsManager
from ray.serve.handle import DeploymentHandle
from ray.util.metrics import Counter, Gauge, Metric

REPORTS = 3
APART_S = 0.01
"""A report is dropped while one before it is on its way, and Serve's own is."""

LOOKS_APART_S, MOST_APART_S = 0.1, 1.0
"""After the reports, until the replica runs: as often as the controller would look without configs/ray.env, and no more
once it does so by itself. Each look waits for the one before, so that many who wait do not bury the controller."""

LATER = 0.05
"""This share of the time waited so far passes until the next look: what takes longer needs no such hurry."""

Record = tuple[Metric, float, dict[str, str]]
RECORDS: deque[Record] = deque(maxlen=100_000)
"""Records that were not handed over, oldest first. If a process never does so, the newest are kept."""
RECORDS_AT_ONCE = 200
"""Handed over without others having a turn: a millisecond."""
RECORD_NOW = Metric._record

SILENT: WeakSet[RouterMetricsManager] = WeakSet()
"""Those that reported last that nothing waits or runs."""


@asynccontextmanager
async def hurried(handle: DeploymentHandle) -> AsyncIterator[None]:
    """While the block runs, the controller looks at the call that was just made at `handle`, and starts a replica."""
    metrics = _metrics(handle)
    if metrics is None:
        yield
        return
    hurry = asyncio.create_task(_hurry(metrics), name="hurry a start")
    try:
        yield
    finally:
        hurry.cancel()


async def _hurry(metrics: RouterMetricsManager) -> None:
    for _ in range(REPORTS):
        await asyncio.sleep(APART_S)
        if metrics.autoscaling_config is None:  # Serve has not told this router yet, and reports nothing before
            continue
        metrics._add_autoscaling_metrics_point()
        metrics.push_autoscaling_metrics_to_controller()
        await _look(metrics)
    began = time.monotonic()
    while (apart_s := max(LOOKS_APART_S, LATER * (time.monotonic() - began))) < MOST_APART_S:
        await asyncio.sleep(apart_s)
        await _look(metrics)


async def _look(metrics: RouterMetricsManager) -> None:
    """Has the controller take a step of its loop now. The arguments are those of one that is not recovering."""
    with suppress(RayError):  # one that is gone is replaced, and looks by itself
        await metrics._controller_handle.run_control_loop_step.remote(time.time(), math.inf, 0)


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


def skip_unchanged_reports() -> None:
    """Called in the constructor of the ingress, before handles are made. Acts on all handles of this process."""
    RouterMetricsManager.push_autoscaling_metrics_to_controller = partialmethod(
        _push_news, RouterMetricsManager.push_autoscaling_metrics_to_controller
    )


def record_later() -> None:
    """Called in the constructor of the ingress: what this process measures is kept until `hand_over_records`."""
    Metric._record = _keep_record


def _keep_record(metric: Metric, value: float, tags: dict[str, str] | None = None) -> None:
    RECORDS.append((metric, value, tags or {}))


async def hand_over_records() -> None:
    """Gives Ray's exporter what was recorded until now. Counts are added up, and of a gauge the last value is taken."""
    merged: dict[Hashable, Record] = {}
    try:
        for number in range(1, len(RECORDS) + 1):
            metric, value, tags = record = RECORDS.popleft()
            if isinstance(metric, Counter | Gauge):
                series = metric, *sorted(tags.items())
                before = merged[series][1] if isinstance(metric, Counter) and series in merged else 0.0
                merged[series] = metric, before + value, tags
            else:
                _hand_over(record)
            if number % RECORDS_AT_ONCE == 0:
                await asyncio.sleep(0)
    finally:  # also where this task is cancelled, as the process ends
        for record in merged.values():
            _hand_over(record)


def _hand_over(record: Record) -> None:
    # One that Ray does not take is lost: nothing fails for it.
    with suppress(ValueError, TypeError):
        RECORD_NOW(*record)


def _push_news(metrics: RouterMetricsManager, push: Callable[[RouterMetricsManager], None]) -> None:
    has_news = any(point.value for series in metrics.metrics_store.data.values() for point in series)
    if has_news or metrics not in SILENT:
        push(metrics)
    (SILENT.discard if has_news else SILENT.add)(metrics)


def _metrics(handle: DeploymentHandle) -> RouterMetricsManager | None:
    """Returns the counter for `handle`; None if that runs in a thread of its own."""
    router = getattr(handle, "_router", None)
    return router._asyncio_router._metrics_manager if isinstance(router, CurrentLoopRouter) else None
