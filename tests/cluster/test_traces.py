"""Traces of the real graph, through HAProxy, ingress and an engine's process, to a collector; and its lines of JSON."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from contract.tracing import INFERENCE, LOAD_IMPORT, LOAD_PHASES, LOAD_PROCESS, LOAD_WEIGHTS, Stage
from tests.cluster.conftest import ROOT, Server, run_state
from tests.cluster.traced import NAME
from tests.collector import Collector, SentSpan, collecting
from tests.waiting import eventually

pytestmark = pytest.mark.cluster

REQUESTS = 2000
AT_ONCE = 8
TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
BODY = {"model": "obedient", "messages": [{"role": "user", "content": "say umbrella"}]}


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@dataclass
class Traced:
    """The traced graph, and what its collector has. Each of the keys has a rate of its own."""

    url: str
    keys: list[str]
    collector: Collector
    logs: Path

    def chat(self, **headers: str) -> httpx.Response:
        url = f"{self.url}/v1/chat/completions"
        return httpx.post(url, json=BODY, headers=bearer(self.keys[-1]) | headers, timeout=120)

    @property
    def spans(self) -> list[SentSpan]:
        """What has come so far."""
        return list(self.collector.spans)

    def trace(self, trace_id: str, count: int) -> list[SentSpan]:
        """The spans of a trace, once there are `count`."""

        def spans() -> list[SentSpan]:
            return [span for span in self.collector.spans if span.trace_id == trace_id]

        eventually(lambda: len(spans()) >= count, 60, f"{trace_id}: {[span.name for span in spans()]}")
        return spans()


@pytest.fixture(scope="module")
def traced(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traced]:
    home = tmp_path_factory.mktemp("traced")
    env = os.environ | server.token | {"PARLANCE_HOME": str(home), "PARLANCE_LOG_FORMAT": "json"}
    run_state(env, "migrate")
    run_state(env, "org", "create", "acme", "--plan", "enterprise")
    keys = [run_state(env, "key", "create", "--org", "acme", "--scopes", "chat") for _ in range(AT_ONCE + 1)]
    with collecting() as collector:
        _control(env, "up", str(home), collector.address)
        made = Traced(f"{server.url}/{NAME}", keys, collector, server.logs)
        eventually(lambda: httpx.get(f"{made.url}/healthz").status_code == 200, 60, "the traced graph never answered")
        yield made
        _control(env, "down")


def _control(env: dict[str, str], *arguments: str) -> None:
    command = [sys.executable, "-m", "tests.cluster.traced", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_a_cold_start_is_a_span_with_its_phases(traced: Traced) -> None:
    reply = traced.chat(traceparent=f"00-{TRACE_ID}-00f067aa0ba902b7-01", tracestate="vendor=1")
    assert reply.status_code == 200
    spans = traced.trace(TRACE_ID, 12)
    by_name = {span.name: span for span in spans}
    operation = by_name["chat obedient"]
    assert reply.headers["traceparent"] == f"00-{TRACE_ID}-{operation.span_id}-01"
    assert reply.headers["tracestate"] == "vendor=1"
    assert operation.parent_id == "00f067aa0ba902b7"
    load = by_name[Stage.LOAD]
    assert load.parent_id == operation.span_id
    phases = [by_name[name] for name in LOAD_PHASES]
    assert {phase.parent_id for phase in phases} == {load.span_id}
    assert sum(phase.duration_s for phase in phases) == pytest.approx(load.duration_s)
    assert [phase.began_s for phase in phases] == pytest.approx(
        [load.began_s, *(phase.ended_s for phase in phases[:-1])]
    )
    # A process of Ray with our graph is not there at once; an engine that computes nothing is.
    assert by_name[LOAD_PROCESS].duration_s > by_name[LOAD_IMPORT].duration_s + by_name[LOAD_WEIGHTS].duration_s
    assert by_name[LOAD_PROCESS].attributes["parlance.way"] == "import"
    inference, engine = by_name[INFERENCE], by_name[Stage.ENGINE]
    assert (inference.role, inference.parent_id) == ("chat-obedient", engine.span_id)
    # The ingress notices a moment later that its call has reached the replica, which may be at work by then.
    assert engine.began_s - 0.1 <= inference.began_s <= inference.ended_s <= engine.ended_s


def test_the_stages_of_a_request_are_its_time(traced: Traced) -> None:
    """The time that the ingress counts for it, which the stopwatch of the gate and the clock of the request measure."""
    traced.chat()
    walls = asyncio.run(_many(traced))
    assert len(walls) == REQUESTS
    eventually(lambda: Counter(span.name for span in traced.spans)[INFERENCE] > REQUESTS, 60, "spans are missing")

    def operations_of_the_ingress() -> list[SentSpan]:
        return [span for span in traced.spans if span.trace_id in walls and span.name == "chat obedient"]

    eventually(lambda: len(operations_of_the_ingress()) == REQUESTS, 60, "spans of the ingress are missing")
    operations = operations_of_the_ingress()
    ids = {operation.attributes["parlance.request_id"] for operation in operations}
    eventually(lambda: ids <= {*_totals(traced)}, 60, "lines of the log are missing")
    children, totals = defaultdict(list), _totals(traced)
    for span in traced.spans:
        children[span.parent_id].append(span)
    fitting = within_client = 0
    for operation in operations:
        total_s = totals[operation.attributes["parlance.request_id"]]
        stages_s = sum(span.duration_s for span in children[operation.span_id])
        fitting += abs(stages_s - total_s) <= 0.05 * total_s
        within_client += stages_s <= 1.05 * walls[operation.trace_id]
    assert fitting >= 0.99 * REQUESTS
    assert within_client >= 0.99 * REQUESTS
    shares = sorted(operation.duration_s / walls[operation.trace_id] for operation in operations)
    print(f"{fitting} of {REQUESTS} fit; of the client's time, {shares[REQUESTS // 2]:.3f} is the operation's (median)")


def test_lines_of_the_log_are_json_and_name_the_request(traced: Traced) -> None:
    reply = traced.chat(traceparent=f"00-{'ab' * 16}-00f067aa0ba902b7-01")
    request_id = reply.headers["x-request-id"]

    def lines() -> list[dict[str, Any]]:
        return [line for line in _lines(traced) if line.get("request_id") == request_id]

    eventually(lambda: len({line["deployment"] for line in lines()}) == 2, 30, "no lines of both processes")
    assert {line["trace_id"] for line in lines()} == {"ab" * 16}
    (access,) = [line for line in lines() if "http.route" in line]
    assert access["http.route"] == "/v1/chat/completions"
    assert access["http.response.status_code"] == 200
    assert access["parlance.model"] == "obedient"
    assert access["parlance.engine_s"] > 0
    assert "umbrella" not in json.dumps(lines())


def test_no_collector_is_waited_for(traced: Traced) -> None:
    traced.collector.may_answer.clear()
    for _ in range(20):
        assert traced.chat().status_code == 200
    traced.collector.may_answer.set()


async def _many(traced: Traced) -> dict[str, float]:
    """Seconds that each request took for its client, by its trace."""
    walls: dict[str, float] = {}
    async with httpx.AsyncClient(timeout=60) as client:

        async def chats(key: str) -> None:
            for _ in range(REQUESTS // AT_ONCE):
                began_s = time.perf_counter()
                reply = await client.post(f"{traced.url}/v1/chat/completions", json=BODY, headers=bearer(key))
                wall_s = time.perf_counter() - began_s
                assert reply.status_code == 200
                walls[reply.headers["traceparent"].split("-")[1]] = wall_s

        await asyncio.gather(*(chats(key) for key in traced.keys[:AT_ONCE]))
    return walls


def _totals(traced: Traced) -> dict[str, float]:
    """Seconds of each request by its id, as its line of the log has them."""
    parts = [f"parlance.{part}_s" for part in ("gateway", "queue", "load", "engine")]
    return {line["request_id"]: sum(line[part] for part in parts) for line in _lines(traced) if parts[0] in line}


def _lines(traced: Traced) -> list[dict[str, Any]]:
    logs = traced.logs.glob(f"replica_{NAME}_*.log")
    return [json.loads(line) for log in logs for line in log.read_text("utf-8").splitlines() if line.startswith("{")]
