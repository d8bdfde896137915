"""The way of spans to a collector: what it takes, and what is lost without anybody waiting for it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator

import pytest

from autoscaling import tracing
from autoscaling.observation import Observation, collector, faults, open_tracer
from autoscaling.tracing import Tracer
from contract.telemetry import SPANS_LOST, Metric
from contract.tracing import TraceContext
from tests.collector import Collector, collecting
from tests.state.servers import free_port

ADDRESS = "OTEL_EXPORTER_OTLP_ENDPOINT"


class Losses:
    def __init__(self) -> None:
        self.total = 0
        self.some = threading.Event()

    def __call__(self, metric: Metric, labels: tuple[str, ...], count: float) -> None:
        assert (metric, labels) == (SPANS_LOST, ())
        self.total += int(count)
        self.some.set()


@pytest.fixture
def collecting_here(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with collecting() as collector:
        monkeypatch.setenv(ADDRESS, collector.address)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
        yield collector


def tracer_of(losses: Losses, **environ: str) -> Tracer:
    tracer = Observation.of_environment({ADDRESS: "http://set"} | environ, "ingress", losses).tracer
    assert tracer
    return tracer


def record(tracer: Tracer, count: int = 1) -> TraceContext:
    for _ in range(count):
        span = tracer.begin(None)
        now_s = time.perf_counter()
        tracer.record(span, None, "chat obedient", now_s - 0.5, now_s, {"gen_ai.operation.name": "chat"})
    return span


def test_spans_arrive_with_their_ids_times_and_process(collecting_here: Collector) -> None:
    losses = Losses()
    tracer = tracer_of(losses)
    before_s = time.time()
    span = record(tracer)
    tracer.close()
    (sent,) = collecting_here.spans
    assert (sent.name, sent.trace_id, sent.span_id, sent.parent_id) == (
        "chat obedient",
        span.trace_id,
        span.span_id,
        "",
    )
    assert sent.role == "ingress"
    assert sent.duration_s == pytest.approx(0.5, abs=1e-4)
    assert before_s - 0.6 < sent.began_s < time.time()
    assert losses.total == 0


def test_what_a_failing_collector_refuses_is_lost_and_counted(
    collecting_here: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    collecting_here.status = 500
    losses = Losses()
    tracer = tracer_of(losses)
    record(tracer, 3)
    with caplog.at_level(logging.WARNING):
        tracer.close(30)
    assert losses.total == 3
    assert [record.message for record in caplog.records] == ["the collector takes no spans; they are lost"]


def test_a_collector_that_is_away_costs_its_spans_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ADDRESS, f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    losses = Losses()
    tracer = tracer_of(losses)
    record(tracer, 5)
    tracer.close(30)
    assert losses.total == 5


def test_more_than_can_wait_are_lost_and_nobody_waits(
    collecting_here: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "MOST_WAITING", 600)
    collecting_here.may_answer.clear()
    losses = Losses()
    tracer = tracer_of(losses)
    record(tracer, 1500)  # 512 of them are on their way
    assert 300 <= losses.total <= 900
    collecting_here.may_answer.set()
    tracer.close(30)
    assert len(collecting_here.spans) + losses.total == 1500


def test_a_process_ends_though_its_collector_answers_nothing(collecting_here: Collector) -> None:
    collecting_here.may_answer.clear()
    tracer = tracer_of(Losses())
    record(tracer)
    began_s = time.perf_counter()
    tracer.close(0.2)
    assert time.perf_counter() - began_s < tracing.FLUSH_S, "it waits as long as it was to, and no longer"
    collecting_here.may_answer.set()


def test_a_service_is_named_by_its_operator(collecting_here: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "voices")
    tracer = tracer_of(Losses())
    assert tracer._provider.resource.attributes["service.name"] == "voices"
    tracer.close()
    monkeypatch.delenv("OTEL_SERVICE_NAME")
    tracer = tracer_of(Losses())
    assert tracer._provider.resource.attributes["service.name"] == "parlance"
    tracer.close()


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {ADDRESS: " "},
        {ADDRESS: "http://a", "OTEL_SDK_DISABLED": "true"},
        {ADDRESS: "http://a", "OTEL_TRACES_EXPORTER": "none"},
    ],
)
def test_without_an_address_nothing_is_traced(environ: dict[str, str]) -> None:
    assert collector(environ) is None
    assert open_tracer(environ, "ingress", lambda count: None) is None
    assert not Observation.of_environment(environ, "ingress", Losses()).is_on
    assert list(faults(environ)) == []


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        ({ADDRESS: "127.0.0.1:4318"}, "`127.0.0.1:4318`, which is no address of HTTP"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "grpc://a"}, "`grpc://a`"),
        ({"PARLANCE_LOG_FORMAT": "xml"}, "PARLANCE_LOG_FORMAT is `xml`; it must be `text` or `json`"),
        ({"PARLANCE_ACCESS_LOG": "yes"}, "PARLANCE_ACCESS_LOG is `yes`; it must be `1` or `0`"),
    ],
)
def test_a_setting_that_cannot_be_is_told_before_the_start(environ: dict[str, str], says: str) -> None:
    (sentence,) = faults(environ)
    assert says in sentence


def test_a_missing_exporter_is_told_before_the_start_and_stops_no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {ADDRESS: "http://127.0.0.1:4318"}
    monkeypatch.setattr("autoscaling.observation.EXPORTER", "opentelemetry.exporter.nowhere.http")
    (sentence,) = faults(environ)
    assert "the package `opentelemetry-exporter-otlp-proto-http` is missing" in sentence
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    assert open_tracer(environ, "chat-obedient", lambda count: None) is None
