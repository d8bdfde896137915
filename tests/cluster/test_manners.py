"""Cold, busy, late and dead engines through HAProxy. One engine per manner."""

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.metadata import version

import httpx
import psutil
import pytest

from contract.errors import FAULTS
from tests.cluster.conftest import ROOT, Server
from tests.cluster.survival import bills
from tests.waiting import eventually

pytestmark = pytest.mark.cluster


def at_once(server: Server, count: int, model: str, text: str) -> list[httpx.Response]:
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(lambda _: server.chat(model, text), range(count)))


@contextmanager
def never_ending(server: Server, model: str) -> Iterator[None]:
    """A stream that has begun, and that its client leaves in the end."""
    body = {"model": model, "messages": [{"role": "user", "content": "stream 10000 0.05"}], "stream": True}
    with server.http() as client, client.stream("POST", "/chat/completions", json=body) as reply:
        lines = reply.iter_lines()  # kept: an iterator that is thrown away closes the stream
        next(lines)
        yield


@pytest.mark.smoke
def test_cold_engine_that_refuses_answers_503_and_wakes(server: Server) -> None:
    reply = server.chat("refusing", "say hi")
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "warming_up")
    assert "warming up" in reply.json()["error"]["message"]
    assert 1 <= int(reply.headers["retry-after"]) <= 60
    eventually(lambda: server.chat("refusing", "say hi").status_code == 200, 60, "the refused call woke nothing")


def test_engine_may_have_an_interpreter_of_its_own(server: Server) -> None:
    if not (ROOT / ".venv/qwen/done").exists():
        pytest.skip("needs `make setup-qwen`")
    found = server.chat("elsewhere", "version transformers").json()["choices"][0]["message"]["content"]
    assert found == "4.57.3" != version("transformers")


@pytest.mark.smoke
def test_cold_engine_that_waits_answers_in_the_end(server: Server) -> None:
    reply = server.chat("sleepy", "say hi")
    assert reply.status_code == 200
    load_ms = float(reply.headers["server-timing"].split("load;dur=")[1].split(",")[0])
    assert load_ms > 0


def test_engine_goes_to_zero_and_comes_back_despite_disconnects(server: Server) -> None:
    body = {"model": "sleepy", "messages": [{"role": "user", "content": "hold 30"}]}
    with pytest.raises(httpx.ReadTimeout), server.http() as client:
        client.post("/chat/completions", json=body, timeout=1)
    assert server.chat("sleepy", "say hi").status_code == 200
    eventually(lambda: server.replicas("chat-sleepy") == 0, 60, "the engine never went to zero")
    assert server.chat("sleepy", "say again").status_code == 200


def test_an_engine_grows_for_calls_that_wait_in_the_ingress(server: Server) -> None:
    """No more than its one slot is ever at work, which alone is no reason to grow."""
    with never_ending(server, "growing"):
        assert [reply.status_code for reply in at_once(server, 3, "growing", "say hi")] == [200] * 3
        assert server.replicas("chat-growing") == 2


def test_busy_is_exact_again_and_again(server: Server) -> None:
    server.chat("exact", "say hi")  # warm
    for _ in range(3):
        replies = at_once(server, 8, "exact", "hold 1")
        assert Counter(reply.status_code for reply in replies) == {200: 2, 429: 6}
        busy = next(reply for reply in replies if reply.status_code == 429)
        assert busy.json()["error"]["code"] == "busy"
        assert busy.headers["retry-after"] == "1"
        assert server.chat("exact", "say hi").status_code == 200  # a slot is free as soon as it is free


@pytest.mark.smoke
def test_queue_is_bounded(server: Server) -> None:
    server.chat("queued", "say hi")
    statuses = Counter(reply.status_code for reply in at_once(server, 6, "queued", "hold 2"))
    assert statuses == {200: 3, 429: 3}  # one works, two wait


@pytest.mark.smoke
def test_deadline_is_504_and_frees_the_engine(server: Server) -> None:
    reply = server.chat("late", "hold 20")
    assert (reply.status_code, reply.json()["error"]["code"]) == (504, "upstream_timeout")
    eventually(lambda: _under_way(server, "late") == 0, 10, "the engine works on for nobody")


def test_broken_engine_is_503_and_leaves_the_others_alone(server: Server) -> None:
    reply = server.chat("broken", "say hi")
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "engine_failed")
    assert server.chat("obedient", "say hi").status_code == 200
    assert server.chat("broken", "say hi").status_code == 503


@pytest.mark.smoke
def test_ray_is_out_of_reach_of_other_machines_and_users(server: Server) -> None:
    pids = {process.pid for process in server.family()}
    sockets = [socket for socket in psutil.net_connections("tcp") if socket.status == psutil.CONN_LISTEN]
    listening = {socket.laddr.ip for socket in sockets if socket.pid in pids}
    assert listening
    assert {address for address in listening if "127.0.0.1" not in address} == set()
    assert (server.home / "ray/session_latest/sockets/raylet").is_socket()
    assert (server.home / "ray").resolve().parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.smoke
def test_dead_replica_is_502_and_replaced(server: Server) -> None:
    server.chat("mortal", "say hi")
    reply = server.chat("mortal", "die")
    assert (reply.status_code, reply.json()["error"]["code"]) == (502, "upstream_error")
    assert server.chat("mortal", "say back").status_code == 200


@pytest.mark.parametrize("command", ["hold 3600", "freeze 3600"], ids=["hangs", "blocks its event loop"])
def test_an_engine_that_finishes_nothing_is_replaced_and_the_next_request_answered(
    server: Server, command: str
) -> None:
    assert server.chat("hanging", "say hi").status_code == 200
    reply = server.chat("hanging", command)  # whose deadline is 40 s
    assert (reply.status_code, reply.json()["error"]["code"]) == (502, "upstream_error")
    if command.startswith("hold"):
        logs = server.logs.glob("replica_*chat-hanging*")
        assert any("chat-hanging stands still" in log.read_text() for log in logs)
    back = server.chat("hanging", "say back")
    assert back.status_code == 200
    eventually(lambda: back.headers["x-request-id"] in bills(server.state, "demo"), 20, "no bill came")
    assert reply.headers["x-request-id"] not in bills(server.state, "demo")


@pytest.mark.smoke
def test_death_in_a_stream_is_an_error_event_without_done(server: Server) -> None:
    reply = server.chat("mortal", "stream 3 0.05 die", stream=True)
    last = [line for line in reply.text.split("\n") if line.startswith("data: ")][-1]
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "upstream_error"
    assert "[DONE]" not in reply.text


@pytest.mark.smoke
def test_disconnect_frees_the_engine(server: Server) -> None:
    server.chat("obedient", "say hi")
    with never_ending(server, "obedient"):
        assert _under_way(server, "obedient") == 1
    eventually(lambda: _under_way(server, "obedient") == 0, 10, "the engine streams on for nobody")


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("model", "text", "fault"),
    [
        ("obedient", "fail", "UPSTREAM_ERROR"),
        ("broken", "say", "ENGINE_FAILED"),
        ("late", "hold 9", "UPSTREAM_TIMEOUT"),
    ],
    ids=["502", "503", "504"],
)
def test_own_5xx_arrives_unchanged_through_haproxy(server: Server, model: str, text: str, fault: str) -> None:
    reply = server.chat(model, text)
    row = FAULTS[fault]
    assert reply.status_code == row.status
    assert reply.json() == {"error": {"message": row.text, "type": row.type, "param": None, "code": row.code}}
    assert reply.headers["x-ratelimit-limit"]
    assert reply.headers.get_list("x-request-id")[0].startswith("req_")
    assert len(reply.headers.get_list("x-request-id")) == 1


def test_storm_of_disconnects_leaves_nothing_at_work(server: Server) -> None:
    server.chat("obedient", "say hi")
    body = {"model": "obedient", "messages": [{"role": "user", "content": "hold 60"}]}

    def leave(index: int) -> None:
        with pytest.raises(httpx.TransportError), server.http() as client:
            client.post("/chat/completions", json=body, timeout=0.01 * (1 + index % 10))

    with ThreadPoolExecutor(20) as pool:
        list(pool.map(leave, range(100)))
    eventually(lambda: _under_way(server, "obedient") == 0, 30, "requests of clients that left run on")


def test_client_cannot_switch_off_the_handling_of_disconnects(server: Server) -> None:
    body = {"model": "obedient", "messages": [{"role": "user", "content": "hold 30"}]}
    headers = {"x-request-disconnect-disabled": "?1", "x-request-timeout-seconds": "0.01"}
    with pytest.raises(httpx.ReadTimeout), server.http() as client:
        client.post("/chat/completions", json=body, headers=headers, timeout=1)
    eventually(lambda: _under_way(server, "obedient") == 0, 10, "the client's header kept the engine at work")


def _under_way(server: Server, model: str) -> int:
    """Requests that the obedient engine works on, without the one that asks."""
    reply = server.chat(model, "count")
    return int(reply.json()["choices"][0]["message"]["content"] or 0)
