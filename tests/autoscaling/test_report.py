"""A call that waits at an engine of zero is counted before it is reported."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from ray.serve._private.router import CurrentLoopRouter

from autoscaling.report import REPORTS, report_waiting


class Metrics:
    """What Ray's has, told in order."""

    def __init__(self, autoscaling_config: object = "known") -> None:
        self.told: list[str] = []
        self.autoscaling_config = autoscaling_config

    def _add_autoscaling_metrics_point(self) -> None:
        self.told.append("count")

    def push_autoscaling_metrics_to_controller(self) -> None:
        self.told.append("report")


def handle(router: Any) -> Any:
    return SimpleNamespace(_router=router)


def test_each_report_has_a_fresh_count() -> None:
    router = CurrentLoopRouter.__new__(CurrentLoopRouter)
    router._asyncio_router = SimpleNamespace(_metrics_manager=(metrics := Metrics()))  # type: ignore[assignment]
    asyncio.run(report_waiting(handle(router)))
    assert metrics.told == ["count", "report"] * REPORTS


def test_a_router_that_knows_no_configuration_yet_is_not_asked() -> None:
    router = CurrentLoopRouter.__new__(CurrentLoopRouter)
    router._asyncio_router = SimpleNamespace(_metrics_manager=(metrics := Metrics(None)))  # type: ignore[assignment]
    asyncio.run(report_waiting(handle(router)))
    assert metrics.told == []


def test_a_router_in_a_thread_of_its_own_is_left_alone() -> None:
    metrics = Metrics()
    asyncio.run(report_waiting(handle(SimpleNamespace(_asyncio_router=SimpleNamespace(_metrics_manager=metrics)))))
    asyncio.run(report_waiting(handle(None)))
    assert metrics.told == []
