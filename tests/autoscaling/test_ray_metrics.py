"""A call that waits at an engine of zero is counted before it is reported."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from ray.serve._private.router import CurrentLoopRouter

from autoscaling.ray_internals.metrics import REPORTS, counted_as_waiting, report_waiting


class Metrics:
    """What Ray's has, told in order."""

    def __init__(self, autoscaling_config: object = "known") -> None:
        self.told: list[str] = []
        self.autoscaling_config = autoscaling_config

    def _add_autoscaling_metrics_point(self) -> None:
        self.told.append("count")

    def push_autoscaling_metrics_to_controller(self) -> None:
        self.told.append("report")

    def inc_num_queued_requests(self) -> None:
        self.told.append("one more")

    def dec_num_queued_requests(self) -> None:
        self.told.append("one less")


def handle(router: Any) -> Any:
    return SimpleNamespace(_router=router)


def counting(metrics: Metrics) -> Any:
    """A handle whose router runs in the loop of its caller."""
    router = CurrentLoopRouter.__new__(CurrentLoopRouter)
    router._asyncio_router = SimpleNamespace(_metrics_manager=metrics)  # type: ignore[assignment]
    return handle(router)


def test_each_report_has_a_fresh_count() -> None:
    metrics = Metrics()
    asyncio.run(report_waiting(counting(metrics)))
    assert metrics.told == ["count", "report"] * REPORTS


@pytest.mark.parametrize("error", [None, KeyError])
def test_a_call_is_counted_while_it_waits_and_not_when_it_gave_up(error: type[Exception] | None) -> None:
    metrics = Metrics()
    with suppress(KeyError), counted_as_waiting(counting(metrics)):
        assert metrics.told == ["one more"]
        if error:
            raise error
    assert metrics.told == ["one more", "one less"]


def test_a_router_that_knows_no_configuration_yet_is_not_asked() -> None:
    metrics = Metrics(None)
    asyncio.run(report_waiting(counting(metrics)))
    assert metrics.told == []


def test_a_router_in_a_thread_of_its_own_is_left_alone() -> None:
    metrics = Metrics()
    asyncio.run(report_waiting(handle(SimpleNamespace(_asyncio_router=SimpleNamespace(_metrics_manager=metrics)))))
    asyncio.run(report_waiting(handle(None)))
    with counted_as_waiting(handle(None)):
        pass
    assert metrics.told == []
