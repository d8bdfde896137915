"""A call that waits at an engine of zero is counted before it is reported."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorDiedError
from ray.serve._private.router import CurrentLoopRouter

from autoscaling.ray_internals.metrics import APART_S, LOOKS, LOOKS_APART_S, REPORTS, counted_as_waiting, hurried
from tests.waiting import until


class Metrics:
    """What Ray's has, told in order."""

    def __init__(self, autoscaling_config: object = "known") -> None:
        self.told: list[str] = []
        self.autoscaling_config = autoscaling_config
        self._controller_handle = SimpleNamespace(run_control_loop_step=SimpleNamespace(remote=self._look))

    async def _look(self, started_at: float, recovering_s: float, loops: int) -> None:
        assert time.time() - started_at < recovering_s  # else the controller would give up what it recovers
        self.told.append("look")

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


async def test_each_report_has_a_fresh_count_and_is_looked_at() -> None:
    metrics = Metrics()
    async with hurried(counting(metrics)):
        await until(lambda: len(metrics.told) >= 3 * REPORTS)
        assert metrics.told == ["count", "report", "look"] * REPORTS


async def test_the_controller_looks_until_the_engine_runs_and_no_longer() -> None:
    metrics = Metrics()
    async with hurried(counting(metrics)):
        await until(lambda: metrics.told[-2:] == ["look", "look"])
    looks = len(metrics.told)
    await asyncio.sleep(2 * LOOKS_APART_S)
    assert len(metrics.told) == looks


async def test_a_start_of_minutes_does_not_keep_the_controller_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autoscaling.ray_internals.metrics.LOOKS_APART_S", 0)
    metrics = Metrics()
    async with hurried(counting(metrics)):
        await until(lambda: metrics.told.count("look") >= REPORTS + LOOKS)
        await asyncio.sleep(APART_S)
    assert metrics.told.count("look") == REPORTS + LOOKS


async def test_a_controller_that_is_gone_keeps_nobody_from_waiting() -> None:
    metrics = Metrics()

    async def gone(*_: object) -> None:
        metrics.told.append("gone")
        raise ActorDiedError

    metrics._controller_handle.run_control_loop_step.remote = gone
    async with hurried(counting(metrics)):
        await until(lambda: metrics.told.count("gone") > REPORTS)


@pytest.mark.parametrize("error", [None, KeyError])
def test_a_call_is_counted_while_it_waits_and_not_when_it_gave_up(error: type[Exception] | None) -> None:
    metrics = Metrics()
    with suppress(KeyError), counted_as_waiting(counting(metrics)):
        assert metrics.told == ["one more"]
        if error:
            raise error
    assert metrics.told == ["one more", "one less"]


async def test_a_router_that_knows_no_configuration_yet_reports_nothing() -> None:
    metrics = Metrics(None)
    async with hurried(counting(metrics)):
        await until(lambda: bool(metrics.told))
    assert set(metrics.told) == {"look"}


async def test_a_router_in_a_thread_of_its_own_is_left_alone() -> None:
    metrics = Metrics()
    for router in (SimpleNamespace(_asyncio_router=SimpleNamespace(_metrics_manager=metrics)), None):
        async with hurried(handle(router)):
            await asyncio.sleep(2 * APART_S)
    with counted_as_waiting(handle(None)):
        pass
    assert metrics.told == []
