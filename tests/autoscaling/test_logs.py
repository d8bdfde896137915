"""Our lines in Serve's log, as Serve sets it up in a replica: text or JSON, each with the ids of its request."""

from __future__ import annotations

import builtins
import json
import logging
import sys
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from ray.serve._private.common import ServeComponentType
from ray.serve._private.logging_utils import configure_component_logger
from ray.serve.schema import LoggingConfig

from autoscaling.ray_internals import logs
from contract.tracing import NAMES, RequestNames, TraceContext

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


def test_a_line_of_json_names_request_and_trace(replica_log: Callable[..., Path]) -> None:
    file = replica_log(PARLANCE_LOG_FORMAT="json")
    NAMES.set(RequestNames("req_1", SPAN))
    logging.getLogger("parlance.deployments.x").info("hello %s", "there", extra={"http.route": "/v1/models"})
    (line,) = lines(file)
    assert (line["message"], line["levelname"], line["deployment"]) == ("hello there", "INFO", "app_ingress")
    assert (line["request_id"], line["trace_id"], line["http.route"]) == ("req_1", SPAN.trace_id, "/v1/models")


def test_a_line_of_no_request_names_none(replica_log: Callable[..., Path]) -> None:
    file = replica_log(PARLANCE_LOG_FORMAT="json")
    logging.getLogger("parlance.x").info("hello")
    assert not {"request_id", "trace_id"} & lines(file)[0].keys()


def test_lines_of_serve_name_request_and_trace(replica_log: Callable[..., Path]) -> None:
    file = replica_log(PARLANCE_LOG_FORMAT="json")
    NAMES.set(RequestNames("req_1", SPAN))
    logging.getLogger("ray.serve").info("POST / 200", extra={"request_id": "another", "serve_access_log": True})
    assert (lines(file)[0]["request_id"], lines(file)[0]["trace_id"]) == ("req_1", SPAN.trace_id)


def test_a_line_of_text_has_both_ids(replica_log: Callable[..., Path]) -> None:
    file = replica_log()
    NAMES.set(RequestNames("req_1", SPAN))
    logging.getLogger("parlance.x").info("hello")
    logs.flush_logs()
    assert f"req_1 {SPAN.trace_id} -- hello" in file.read_text("utf-8")


def test_a_warning_is_there_at_once(replica_log: Callable[..., Path]) -> None:
    file = replica_log()
    logging.getLogger("parlance.x").info("first")
    assert file.read_text("utf-8") == ""
    logging.getLogger("parlance.x").warning("second")
    assert [line.rpartition("-- ")[2] for line in file.read_text("utf-8").splitlines()] == ["first", "second"]


def test_containers_read_the_same_lines_on_standard_output(
    replica_log: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "__stdout__", output := StringIO())
    monkeypatch.setattr(sys, "__stderr__", error := StringIO())
    file = replica_log(PARLANCE_LOG_FORMAT="json", RAY_LOG_TO_STDERR="1")
    NAMES.set(RequestNames("req_1"))
    logging.getLogger("parlance.x").info("hello")
    logging.getLogger("ray.serve").info("POST / 200")
    assert [json.loads(line) for line in output.getvalue().splitlines()] == lines(file)
    assert [(line["message"], line["request_id"]) for line in lines(file)] == [
        ("hello", "req_1"),
        ("POST / 200", "req_1"),
    ]
    assert error.getvalue() == ""


@pytest.mark.parametrize("value", [None, "", "0", "true"])
def test_without_that_setting_standard_output_stays_empty(
    replica_log: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    monkeypatch.setattr(sys, "__stdout__", output := StringIO())
    replica_log(**({} if value is None else {"RAY_LOG_TO_STDERR": value}))
    logging.getLogger("parlance.x").warning("hello")
    assert output.getvalue() == ""


def test_without_a_log_of_serve_nothing_changes() -> None:
    ours = logging.getLogger(logs.OURS)
    before = (list(ours.handlers), ours.propagate)
    logs.join_serve_logs({})
    assert (ours.handlers, ours.propagate) == before
