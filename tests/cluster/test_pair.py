"""Several ingress replicas are one service: keys, rates, money and repeated requests over PostgreSQL and Redis."""

import json
import os
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

import httpx
import pytest

from contract.limits import KEY_CACHE_S
from tests.cluster.conftest import ROOT, Server, run_state
from tests.cluster.pair import NAME
from tests.state.servers import Postgres, Redis, run_server
from tests.waiting import eventually

pytestmark = pytest.mark.cluster

SECRET = "5b" * 32
BODY = {"model": "obedient", "max_tokens": 8, "messages": [{"role": "user", "content": "say hi"}]}
PRICE_MICRO_EUR = 13
"""Of one answer of the obedient engine: 7 tokens in, 3 out."""


@dataclass
class Pair:
    """The second graph and its command line."""

    url: str
    env: dict[str, str]
    client: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=60))
    up: Callable[..., dict[str, int]] = lambda *_: {}
    down: Callable[[], object] = lambda: None

    def state(self, *arguments: str) -> str:
        return run_state(self.env, *arguments)

    def key(self, org: str, plan: str = "enterprise", scopes: str = "chat") -> str:
        self.state("org", "create", org, "--plan", plan)
        return self.state("key", "create", "--org", org, "--scopes", scopes)

    def chat(self, key: str, **headers: str) -> httpx.Response:
        return self.client.post(
            f"{self.url}/v1/chat/completions", json=BODY, headers={"authorization": f"Bearer {key}", **headers}
        )

    def at_once(self, count: int, key: str, **headers: str) -> Counter[int]:
        with ThreadPoolExecutor(16) as pool:
            return Counter(reply.status_code for reply in pool.map(lambda _: self.chat(key, **headers), range(count)))

    def usage(self, org: str) -> list[dict[str, Any]]:
        lines: list[dict[str, Any]] = json.loads(self.state("usage", "--org", org, "--format", "json"))
        return lines


@pytest.fixture(scope="module")
def pair(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    home = tmp_path_factory.mktemp("pair")
    with run_server(Postgres) as postgres, run_server(Redis) as redis:
        addresses = {"PARLANCE_DATABASE_URL": postgres.url, "PARLANCE_REDIS_URL": redis.url}
        env = os.environ | server.token | addresses | {"PARLANCE_HOME": str(home), "PARLANCE_SECRET": SECRET}
        made = Pair(f"{server.url}/{NAME}", env)
        made.state("migrate")
        made.up = partial(_control, env, "up", home, postgres.url, redis.url, SECRET)
        made.down = partial(_control, env, "down")
        assert made.up()["chat-obedient"] == 0
        eventually(lambda: httpx.get(f"{made.url}/healthz").status_code == 200, 60, "the second graph never answered")
        yield made
        made.client.close()
        _control(env, "down")


def _control(env: dict[str, str], *arguments: str | Path) -> dict[str, int]:
    """Running replicas by deployment, as `up` prints them."""
    command = [sys.executable, "-m", "tests.cluster.pair", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, env=env, check=True, timeout=300, stdout=subprocess.PIPE, text=True)
    running: dict[str, int] = json.loads(done.stdout.strip().rpartition("\n")[2] or "{}")
    return running


def test_rate_is_one_for_both_replicas(pair: Pair) -> None:
    assert pair.at_once(40, pair.key("rated", "free")) == {200: 20, 429: 20}


def test_budget_is_one_for_both_replicas(pair: Pair) -> None:
    key, limit = pair.key("poor"), 200 * PRICE_MICRO_EUR
    pair.state("budget", "set", "--org", "poor", "--limit-micro-eur", str(limit))
    statuses = pair.at_once(400, key)
    assert set(statuses) == {200, 402}
    lines = pair.usage("poor")
    assert len(lines) == statuses[200]
    assert sum(line["cost_micro_eur"] for line in lines) <= limit
    pair.state("check")


def test_repeated_request_is_done_once_wherever_it_arrives(pair: Pair) -> None:
    key = pair.key("careful")
    statuses = pair.at_once(30, key, **{"idempotency-key": "once"})
    assert set(statuses) <= {200, 409}
    assert len(pair.usage("careful")) == 1


def test_revoked_key_dies_on_both_replicas(pair: Pair) -> None:
    key = pair.key("revoked")
    assert pair.at_once(20, key) == {200: 20}
    pair.state("key", "revoke", key.split("_")[1])
    eventually(lambda: pair.at_once(20, key) == {401: 20}, KEY_CACHE_S + 1, "a replica still takes a revoked key")


LOOKS = 12
"""Each by a connection of its own, so that both replicas answer some."""


def look(pair: Pair, key: str) -> dict[str, Any]:
    """The graph as a replica shows it, without its time and bands."""
    headers = {"authorization": f"Bearer {key}"}
    with httpx.stream("GET", f"{pair.url}/v1/console/events", headers=headers) as reply:
        assert reply.status_code == 200, reply.read()
        lines = takewhile(bool, (line for line in reply.iter_lines() if not line.startswith(":")))
        snapshot = dict(line.split(": ", 1) for line in lines)
    picture: dict[str, Any] = json.loads(snapshot["data"])
    del picture["time_ms"]
    for engine in picture["engines"]:
        del engine["bands"]
    return picture


def test_the_console_shows_the_same_graph_from_both_replicas(pair: Pair) -> None:
    key = pair.key("watcher", scopes="chat,console:operate")
    assert pair.at_once(20, key) == {200: 20}

    def agree() -> bool:
        first, *others = (look(pair, key) for _ in range(LOOKS))
        is_counted = first["engines"][0]["requests_per_minute"] >= 20  # others may have called in this minute, too
        return (
            is_counted and first["processes"] == 2 and all(picture["engines"] == first["engines"] for picture in others)
        )

    eventually(agree, 50, "a replica does not show what the other one has done")


def test_a_graph_that_takes_over_has_woken_what_was_in_use_before_it_is_ready(pair: Pair) -> None:
    key = pair.key("upgraded")
    assert pair.chat(key).status_code == 200
    eventually(lambda: len(pair.usage("upgraded")) == 1, 30, "the bill is missing")
    pair.down()
    assert pair.up()["chat-obedient"] == 1
    eventually(lambda: httpx.get(f"{pair.url}/healthz").status_code == 200, 60, "the new graph never answered")
    reply = pair.chat(key)
    assert reply.status_code == 200
    (load_ms,) = [float(ms) for ms in re.findall(r"load;dur=([0-9.]+)", reply.headers["server-timing"])]
    assert load_ms == 0


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
