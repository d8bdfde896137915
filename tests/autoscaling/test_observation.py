"""Lines in Serve's log, each with the ids of its request, and the way of spans to a collector."""

import builtins
import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from ray.serve._private.common import ServeComponentType
from ray.serve._private.logging_utils import configure_component_logger
from ray.serve.schema import LoggingConfig

from autoscaling import tracing
from autoscaling.observation import Observation, collector, faults, open_tracer
from autoscaling.ray_internals import logs
from autoscaling.tracing import Tracer
from benchmarks.servers import free_port
from contract.telemetry import SPANS_LOST, Metric
from contract.tracing import NAMES, RequestNames, TraceContext
from tests.collector import Collector, collecting

SPAN = TraceContext("ab" * 16, "cd" * 8)


@pytest.fixture
def replica_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    saved = {
        name: (logger := logging.getLogger(name), list(logger.handlers), logger.propagate, logger.level)
        for name in (logs.OURS, logs.SERVES)
    }
    stdout, stderr, printing = sys.stdout, sys.stderr, builtins.print

    def set_up(**environ: str) -> Path:
        options = logs.logging_config(environ) | {"logs_dir": str(tmp_path)}
        configure_component_logger(
            component_name="app_ingress",
            component_id="abc",
            component_type=ServeComponentType.REPLICA,
            logging_config=LoggingConfig(**options),
            max_bytes=10**6,
            backup_count=1,
            buffer_size=1000,
        )
        logs.join_serve_logs(environ)
        (file,) = tmp_path.glob("*.log")
        return file

    yield set_up
    sys.stdout, sys.stderr, builtins.print = stdout, stderr, printing
    for logger, handlers, propagate, level in saved.values():
        for handler in logger.handlers:
            target = getattr(handler, "target", None)
            handler.close()
            if target:
                target.close()
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)
    NAMES.set(None)


def lines(file: Path) -> list[dict[str, Any]]:
    logs.flush_logs()
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def test_a_line_of_json_names_request_and_trace_or_none_and_one_of_serve_its_own(
    replica_log: Callable[..., Path],
) -> None:
    file = replica_log(PARLANCE_LOG_FORMAT="json")
    logging.getLogger("parlance.x").info("hello")
    assert not {"request_id", "trace_id"} & lines(file)[0].keys()
    NAMES.set(RequestNames("req_1", SPAN))
    logging.getLogger("ray.serve").info("POST / 200", extra={"request_id": "another", "serve_access_log": True})
    assert (lines(file)[1]["request_id"], lines(file)[1]["trace_id"]) == ("req_1", SPAN.trace_id)
    logging.getLogger("parlance.deployments.x").info("hello %s", "there", extra={"http.route": "/v1/models"})
    *_, line = lines(file)
    assert (line["message"], line["levelname"], line["deployment"]) == ("hello there", "INFO", "app_ingress")
    assert (line["request_id"], line["trace_id"], line["http.route"]) == ("req_1", SPAN.trace_id, "/v1/models")


def test_a_line_of_text_has_both_ids_and_a_warning_is_there_at_once(replica_log: Callable[..., Path]) -> None:
    file = replica_log()
    NAMES.set(RequestNames("req_1", SPAN))
    logging.getLogger("parlance.x").info("first")
    assert file.read_text("utf-8") == ""
    logging.getLogger("parlance.x").warning("second")
    ends = [f"req_1 {SPAN.trace_id} -- {word}" for word in ("first", "second")]
    assert [line[-len(end) :] for line, end in zip(file.read_text("utf-8").splitlines(), ends, strict=True)] == ends


def test_the_same_lines_are_on_standard_output(
    replica_log: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "__stdout__", output := StringIO())
    monkeypatch.setattr(sys, "__stderr__", error := StringIO())
    file = replica_log(PARLANCE_LOG_FORMAT="json", RAY_LOG_TO_STDERR="1")
    NAMES.set(RequestNames("req_1"))
    logging.getLogger("parlance.x").info("hello")
    logging.getLogger("ray.serve").info("POST / 200")
    assert [json.loads(line) for line in output.getvalue().splitlines()] == lines(file)
    assert [line["message"] for line in lines(file)] == ["hello", "POST / 200"]
    assert {line["request_id"] for line in lines(file)} == {"req_1"}
    assert error.getvalue() == ""


@pytest.mark.parametrize("setting", [{}, *({"RAY_LOG_TO_STDERR": value} for value in ("", "0", "true"))])
def test_without_that_setting_standard_output_stays_empty(
    replica_log: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, setting: dict[str, str]
) -> None:
    monkeypatch.setattr(sys, "__stdout__", output := StringIO())
    replica_log(**setting)
    logging.getLogger("parlance.x").warning("hello")
    assert output.getvalue() == ""


def test_a_library_that_closes_every_handler_leaves_serves_log(replica_log: Callable[..., Path]) -> None:
    """As `logging.config.dictConfig` does."""
    file = replica_log()
    for handler in logging.getLogger(logs.SERVES).handlers:
        handler.close()
    logging.getLogger("parlance.x").warning("loaded")
    assert "loaded" in file.read_text("utf-8")


def test_without_a_log_of_serve_nothing_changes() -> None:
    ours = logging.getLogger(logs.OURS)
    before = (list(ours.handlers), ours.propagate)
    logs.join_serve_logs({})
    assert (ours.handlers, ours.propagate) == before


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
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")  # after which the exporter sends again
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
    tracer = tracer_of(losses := Losses())
    before_s = time.time()
    span = record(tracer)
    tracer.close()
    (sent,) = collecting_here.spans
    assert (sent.trace_id, sent.span_id, sent.parent_id) == (span.trace_id, span.span_id, "")
    assert (sent.name, sent.role) == ("chat obedient", "ingress")
    assert sent.duration_s == pytest.approx(0.5, abs=1e-4)
    assert before_s - 0.6 < sent.began_s < time.time()
    assert losses.total == 0


@pytest.mark.parametrize("is_away", [False, True])
def test_what_a_collector_refuses_or_never_gets_is_lost_and_counted(
    collecting_here: Collector, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, is_away: bool
) -> None:
    collecting_here.status = 500
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    if is_away:
        monkeypatch.setenv(ADDRESS, f"http://127.0.0.1:{free_port()}")
    tracer = tracer_of(losses := Losses())
    record(tracer, 3)
    with caplog.at_level(logging.WARNING):
        tracer.close(30)
    assert losses.total == 3
    assert [record.message for record in caplog.records] == ["the collector takes no spans; they are lost"]


def test_more_than_can_wait_are_lost_at_once(collecting_here: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "MOST_WAITING", 600)
    collecting_here.may_answer.clear()
    tracer = tracer_of(losses := Losses())
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


@pytest.mark.parametrize("name", ["voices", None])
def test_a_service_has_a_name(collecting_here: Collector, monkeypatch: pytest.MonkeyPatch, name: str | None) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", name) if name else monkeypatch.delenv("OTEL_SERVICE_NAME", raising=False)
    tracer = tracer_of(Losses())
    assert tracer._provider.resource.attributes["service.name"] == (name or "parlance")
    tracer.close()


def test_without_an_address_nothing_is_traced() -> None:
    off = ({ADDRESS: " "}, {"OTEL_SDK_DISABLED": "true"}, {"OTEL_TRACES_EXPORTER": "none"})
    for environ in ({}, *({ADDRESS: "http://a"} | setting for setting in off)):
        assert collector(environ) is None, environ
        assert open_tracer(environ, "ingress", lambda count: None) is None
        assert not Observation.of_environment(environ, "ingress", Losses()).is_on
        assert list(faults(environ)) == []


def test_a_setting_that_cannot_be_is_reported_before_the_start() -> None:
    reports = {
        (ADDRESS, "127.0.0.1:4318"): "`127.0.0.1:4318`, which is no address of HTTP",
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "grpc://a"): "`grpc://a`",
        ("PARLANCE_LOG_FORMAT", "xml"): "PARLANCE_LOG_FORMAT is `xml`; it must be `text` or `json`",
        ("PARLANCE_ACCESS_LOG", "yes"): "PARLANCE_ACCESS_LOG is `yes`; it must be `1` or `0`",
    }
    for (name, value), report in reports.items():
        (sentence,) = faults({name: value})
        assert report in sentence


def test_a_missing_exporter_is_told_before_the_start_and_stops_no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {ADDRESS: "http://127.0.0.1:4318"}
    monkeypatch.setattr("autoscaling.observation.EXPORTER", "opentelemetry.exporter.nowhere.http")
    (sentence,) = faults(environ)
    assert "the package `opentelemetry-exporter-otlp-proto-http` is missing" in sentence
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    assert open_tracer(environ, "chat-obedient", lambda count: None) is None
