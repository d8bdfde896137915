"""A call that waits at an engine of zero is counted before it is reported."""

import asyncio
import time
from contextlib import suppress
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorDiedError
from ray.serve._private.metrics_utils import InMemoryMetricsStore
from ray.serve._private.router import CurrentLoopRouter, RouterMetricsManager
from ray.util.metrics import Counter, Gauge, Histogram, Metric

from autoscaling.ray_internals import metrics as ray_metrics
from tests.waiting import until

pytestmark = pytest.mark.virtual


class Metrics:
    """What Ray's has, told in order."""

    def __init__(self, autoscaling_config: object = "known") -> None:
        self.told: list[str] = []
        self.looked_s: list[float] = []
        self.autoscaling_config = autoscaling_config
        self._controller_handle = SimpleNamespace(run_control_loop_step=SimpleNamespace(remote=self._look))

    async def _look(self, started_at: float, recovering_s: float, loops: int) -> None:
        assert time.time() - started_at < recovering_s  # else the controller would give up what it recovers
        self.told.append("look")
        self.looked_s.append(asyncio.get_running_loop().time())

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
    async with ray_metrics.hurried(counting(metrics)):
        await until(lambda: len(metrics.told) >= 3 * ray_metrics.REPORTS)
        assert metrics.told == ["count", "report", "look"] * ray_metrics.REPORTS


async def test_the_controller_looks_until_the_engine_runs_and_no_longer() -> None:
    metrics = Metrics()
    async with ray_metrics.hurried(counting(metrics)):
        await until(lambda: metrics.told[-2:] == ["look", "look"])
    looks = len(metrics.told)
    await asyncio.sleep(2 * ray_metrics.LOOKS_APART_S)
    assert len(metrics.told) == looks


async def test_a_start_of_minutes_is_looked_at_less_and_less_and_then_not_at_all() -> None:
    metrics, longest_s = Metrics(), ray_metrics.MOST_APART_S / ray_metrics.LATER
    async with ray_metrics.hurried(counting(metrics)):
        await asyncio.sleep(10 * longest_s)
    looked_s = metrics.looked_s[ray_metrics.REPORTS - 1 :]
    waits = [round(after - before, 6) for before, after in pairwise(looked_s)]
    assert waits[0] == ray_metrics.LOOKS_APART_S
    assert waits == sorted(waits)
    assert waits[-1] < ray_metrics.MOST_APART_S
    assert sum(at_s > 0.9 * longest_s for at_s in looked_s) <= 5
    assert len(waits) < 100
    assert looked_s[-1] < 1.1 * longest_s


async def test_a_controller_that_is_gone_keeps_nobody_from_waiting() -> None:
    metrics = Metrics()

    async def gone(*_: object) -> None:
        metrics.told.append("gone")
        raise ActorDiedError

    metrics._controller_handle.run_control_loop_step.remote = gone
    async with ray_metrics.hurried(counting(metrics)):
        await until(lambda: metrics.told.count("gone") > ray_metrics.REPORTS)


@pytest.mark.parametrize("error", [None, KeyError])
def test_a_call_is_counted_while_it_waits_and_not_when_it_gave_up(error: type[Exception] | None) -> None:
    metrics = Metrics()
    with suppress(KeyError), ray_metrics.counted_as_waiting(counting(metrics)):
        assert metrics.told == ["one more"]
        if error:
            raise error
    assert metrics.told == ["one more", "one less"]


async def test_a_router_that_knows_no_configuration_yet_reports_nothing() -> None:
    metrics = Metrics(None)
    async with ray_metrics.hurried(counting(metrics)):
        await until(lambda: bool(metrics.told))
    assert set(metrics.told) == {"look"}


async def test_a_router_in_a_thread_of_its_own_is_left_alone() -> None:
    metrics = Metrics()
    for router in (SimpleNamespace(_asyncio_router=SimpleNamespace(_metrics_manager=metrics)), None):
        async with ray_metrics.hurried(handle(router)):
            await asyncio.sleep(2 * ray_metrics.APART_S)
    with ray_metrics.counted_as_waiting(handle(None)):
        pass
    assert metrics.told == []


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Reports to the controller, each as the sum of its counts, with `skip_unchanged_reports` in force."""
    sent: list[float] = []

    def push(metrics: RouterMetricsManager) -> None:
        sent.append(sum(point.value for series in metrics.metrics_store.data.values() for point in series))

    monkeypatch.setattr(RouterMetricsManager, "push_autoscaling_metrics_to_controller", push)
    ray_metrics.skip_unchanged_reports()
    return sent


def test_a_handle_at_which_nothing_happens_says_so_once_and_is_silent(reports: list[float]) -> None:
    for _ in range(2):  # each by itself
        metrics = RouterMetricsManager.__new__(RouterMetricsManager)
        metrics.metrics_store = InMemoryMetricsStore()
        for second, waiting in enumerate([0, 0, 0, 2, 2, 0, 0]):
            metrics.metrics_store.add_metrics_point({"waiting": waiting}, second)
            metrics.metrics_store.prune_keys_and_compact_data(second - 0.5)
            metrics.push_autoscaling_metrics_to_controller()
    assert reports == [0, 2, 2, 0] * 2


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, float, dict[str, str]]]:
    """What Ray's exporter is given, with `record_later` in force: name, value and tags."""
    taken: list[tuple[str, float, dict[str, str]]] = []
    ray_metrics.RECORDS.clear()
    monkeypatch.setattr(Metric, "_record", Metric._record)  # taken back afterwards
    monkeypatch.setattr(
        ray_metrics, "RECORD_NOW", lambda metric, value, tags: taken.append((metric._name, value, tags))
    )
    ray_metrics.record_later()
    return taken


async def test_what_is_measured_goes_out_in_one_go_and_nothing_is_lost(taken: list[Any]) -> None:
    count, state = Counter("count", "", ("of",)), Gauge("state", "", ("of",))
    seconds = Histogram("seconds", "", [0.1, 1.0], ("of",))
    a, b = {"of": "a"}, {"of": "b"}
    for number in range(3):
        count.inc(2, a)
        state.set(number, a)
        seconds.observe(number, a)
    count.inc(5, b)
    assert taken == []
    await ray_metrics.hand_over_records()
    assert [value for name, value, _ in taken if name == "seconds"] == [0, 1, 2]
    assert [entry for entry in taken if entry[0] != "seconds"] == [("count", 6, a), ("state", 2, a), ("count", 5, b)]
    taken.clear()
    await ray_metrics.hand_over_records()
    assert taken == []


async def test_others_have_their_turn_while_much_is_handed_over(taken: list[Any]) -> None:
    seconds = Histogram("seconds", "", [1.0])
    for _ in range(3 * ray_metrics.RECORDS_AT_ONCE):
        seconds.observe(1)
    handing, seen = asyncio.ensure_future(ray_metrics.hand_over_records()), []
    while not handing.done():
        await asyncio.sleep(0)
        seen.append(len(taken))
    assert {ray_metrics.RECORDS_AT_ONCE, 2 * ray_metrics.RECORDS_AT_ONCE, 3 * ray_metrics.RECORDS_AT_ONCE} <= {*seen}


async def test_a_value_that_ray_refuses_keeps_no_other_back(monkeypatch: pytest.MonkeyPatch, taken: list[Any]) -> None:
    def refuse(metric: Metric, value: float, tags: dict[str, str]) -> None:
        if value < 0:
            raise ValueError("no")
        taken.append(value)

    monkeypatch.setattr(ray_metrics, "RECORD_NOW", refuse)
    for value in (-1, 1):
        Histogram("seconds", "", [1.0]).observe(value)
    await ray_metrics.hand_over_records()
    assert taken == [1]


async def test_counts_are_handed_over_where_the_process_ends_meanwhile(taken: list[Any]) -> None:
    count, seconds = Counter("count", "", ("of",)), Histogram("seconds", "", [1.0])
    count.inc(3, {"of": "a"})
    for _ in range(2 * ray_metrics.RECORDS_AT_ONCE):
        seconds.observe(1)
    handing = asyncio.ensure_future(ray_metrics.hand_over_records())
    await asyncio.sleep(0)
    handing.cancel()
    await asyncio.gather(handing, return_exceptions=True)
    assert ("count", 3, {"of": "a"}) in taken
