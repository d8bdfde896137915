"""Every replica of ingress and engine is replaced while streams run: no request is lost, and no bill."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.cluster.test_pair import PRICE_MICRO_EUR, Pair, pair
from tests.waiting import eventually

__all__ = ["pair"]

pytestmark = pytest.mark.cluster

STREAMS = 20
EVENTS, PAUSE_S = 40, 0.5
"""Of each stream: it outlives the replicas that it began on."""

STREAM_MICRO_EUR = 7 + 2 * EVENTS


def _stream(pair: Pair, key: str, running: threading.Semaphore) -> list[str]:
    """The events of one stream."""
    body = {
        "model": "obedient",
        "stream": True,
        "messages": [{"role": "user", "content": f"stream {EVENTS} {PAUSE_S}"}],
    }
    events: list[str] = []
    with (
        httpx.Client(timeout=120) as client,
        client.stream(
            "POST", f"{pair.url}/v1/chat/completions", json=body, headers={"authorization": f"Bearer {key}"}
        ) as reply,
    ):
        assert reply.status_code == 200, reply.read()
        for line in reply.iter_lines():
            if line.startswith("data: "):
                if not events:
                    running.release()
                events.append(line.removeprefix("data: "))
    return events


def _calls(pair: Pair, key: str, stop: threading.Event) -> list[int]:
    """Statuses of short calls, one after the other, until `stop`."""
    statuses = []
    while not stop.is_set():
        statuses.append(pair.chat(key).status_code)
    return statuses


def test_redeploy_under_load_loses_no_request_and_no_bill(pair: Pair) -> None:
    key = pair.key("rolling")
    pair.state("org", "change", "rolling", "--requests-per-minute", "1000000")
    running, stop = threading.Semaphore(0), threading.Event()
    assert pair.chat(key).status_code == 200  # warm
    with ThreadPoolExecutor(STREAMS + 1) as pool:
        streams = [pool.submit(_stream, pair, key, running) for _ in range(STREAMS)]
        calls = pool.submit(_calls, pair, key, stop)
        for _ in range(STREAMS):
            assert running.acquire(timeout=60)
        pair.up("2")
        events = [stream.result(120) for stream in streams]
        stop.set()
        statuses = calls.result(60)
    assert {len(found) for found in events} == {EVENTS + 1}
    assert {found[-1] for found in events} == {"[DONE]"}
    assert set(statuses) == {200}

    def all_billed() -> bool:
        return len(pair.usage("rolling")) == 1 + STREAMS + len(statuses)

    eventually(all_billed, 30, "a bill is missing")
    costs = [line["cost_micro_eur"] for line in pair.usage("rolling")]
    assert sorted(costs) == sorted([STREAM_MICRO_EUR] * STREAMS + [PRICE_MICRO_EUR] * (1 + len(statuses)))
    pair.state("check")
