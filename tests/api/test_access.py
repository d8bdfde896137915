"""Access: keys, scopes, and the turns of organisations."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from autoscaling.engine import CallContext
from autoscaling.queue import SlotQueue
from concurrency.semaphore import FairSemaphore
from contract.access import TARIFFS, Scope
from models.batching import TokenBatcher
from tests.api.asgi import ask
from tests.api.bodies import BODIES
from tests.api.conftest import Api, app_over, refused
from tests.api.engines import LocalEngine
from tests.api.sounds import wav
from tests.waiting import until

RATE_HEADERS = ("x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset")


async def test_body_is_checked_before_the_budget(api: Api) -> None:
    await api.limit(0)
    assert (await api.send("POST", "/v1/chat/completions", content=b"{")).status_code == 400


ORDERS = "/audio/voices/designs"
ADOPTIONS = f"{ORDERS}/x/adopt"

FIRST = {
    ("/chat/completions", "model", "repeated"): (404, "model_not_found"),
    ("/chat/completions", "model", "budget"): (404, "model_not_found"),
    ("/chat/completions", "repeated", "budget"): (409, "idempotency_in_progress"),
    (ADOPTIONS, "draft", "plan"): (404, "not_found"),
    (ADOPTIONS, "draft", "repeated"): (404, "not_found"),
    (ORDERS, "plan", "repeated"): (403, "voice_not_in_plan"),
    (ORDERS, "plan", "budget"): (403, "voice_not_in_plan"),
    (ORDERS, "repeated", "budget"): (409, "idempotency_in_progress"),
}
"""What is answered where two things are wrong beyond the body: the first one decides."""


async def test_model_plan_repetition_and_budget_are_looked_at_in_this_order(api: Api) -> None:
    found = {}
    for number, (path, *faults) in enumerate(FIRST):
        org = f"org-{number}"
        await api.organisation(org, "free" if "plan" in faults else "pro")
        key = await api.key(*Scope, org=org)
        body = json.dumps(BODIES[path] | ({"model": "unknown"} if "model" in faults else {})).encode()
        if "repeated" in faults:
            digest = hashlib.sha256(body).hexdigest()
            await api.state.idempotency.begin(await api.caller(key), f"POST {path}", "k", digest)
        if "budget" in faults:
            await api.limit(0, org)
        reply = await api.send("POST", f"/v1{path}", key, content=body, headers={"Idempotency-Key": "k"})
        found[path, *faults] = (reply.status_code, reply.json()["error"]["code"])
    assert found == FIRST


async def test_every_authenticated_reply_tells_the_rate(api: Api) -> None:
    key = await api.key(Scope.EMBEDDINGS)
    for reply in (
        await api.send("GET", "/v1/me"),
        await api.chat("refuse"),
        await api.chat(key=key),
        await api.send("GET", "/v1/models/unknown"),
    ):
        assert all(name in reply.headers for name in RATE_HEADERS), reply.url


@pytest.mark.usefixtures("one_window")
async def test_rate_limit_is_429_with_every_header(api: Api) -> None:
    await api.organisation("small", "free")
    key = await api.key(Scope.CHAT, org="small")
    allowed = TARIFFS["free"].requests_per_minute
    statuses = [(await api.send("GET", "/v1/me", key)).status_code for _ in range(allowed)]
    assert statuses == [200] * allowed
    reply = await api.send("GET", "/v1/me", key)
    refused(reply, 429, "rate_limit_exceeded")
    assert reply.headers["retry-after"] == reply.headers["x-ratelimit-reset"]
    assert 1 <= int(reply.headers["retry-after"]) <= 60
    assert reply.headers["x-ratelimit-limit"] == str(allowed)
    assert reply.headers["x-ratelimit-remaining"] == "0"


@pytest.mark.usefixtures("one_window")
async def test_rate_of_one_key_does_not_touch_another(api: Api) -> None:
    await api.organisation("small", "free")
    one, other = await api.key(Scope.CHAT, org="small"), await api.key(Scope.CHAT, org="small")
    for _ in range(TARIFFS["free"].requests_per_minute + 1):
        await api.send("GET", "/v1/me", one)
    assert (await api.send("GET", "/v1/me", other)).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing", 404, "not_found"),
        ("GET", "/v1/nothing", 404, "not_found"),
        ("GET", "/v2/models", 404, "not_found"),
        ("DELETE", "/v1/models", 405, "method_not_allowed"),
        ("GET", "/v1/chat/completions", 405, "method_not_allowed"),
    ],
)
async def test_wrong_turns_have_the_error_shape(api: Api, method: str, path: str, status: int, code: str) -> None:
    reply = await api.send(method, path)
    assert reply.status_code == status
    error = reply.json()["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", code)
    assert set(error) == {"message", "type", "param", "code"}
    assert reply.headers["x-request-id"].startswith("req_")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "invalid_json"),
        (b"[]", "invalid_request_error"),
        (b"\xff\xfe", "invalid_json"),
        (b'{"a": NaN}', "invalid_json"),
        (b'{"a": 1, "a": 2}', "invalid_json"),
        (b"[" * 5000, "invalid_json"),
    ],
)
async def test_malformed_json_is_400(api: Api, body: bytes, code: str) -> None:
    """All that is none: tests/contract/test_body.py."""
    for path in ("/v1/chat/completions", "/v1/embeddings", "/v1/rerank"):
        reply = await api.send("POST", path, content=body)
        assert (reply.status_code, reply.json()["error"]["code"]) == (400, code)


async def test_request_id_is_ours_even_if_the_client_sends_one(api: Api) -> None:
    first = await api.send("GET", "/v1/me", headers={"x-request-id": "mine"})
    second = await api.send("GET", "/v1/me", headers={"x-request-id": "mine"})
    assert "mine" not in (first.headers["x-request-id"], second.headers["x-request-id"])
    assert first.headers["x-request-id"] != second.headers["x-request-id"]


async def test_server_timing_tells_gateway_and_engine(api: Api) -> None:
    reply = await api.chat()
    assert {part.split(";")[0].strip() for part in reply.headers["server-timing"].split(",")} >= {"gateway", "engine"}


async def test_me_lists_every_scope_with_a_granted_flag(api: Api) -> None:
    key = await api.key(Scope.CHAT, Scope.MCP)
    about = (await api.send("GET", "/v1/me", key)).json()
    granted = {entry["scope"] for entry in about["scopes"] if entry["granted"]}
    assert {entry["scope"] for entry in about["scopes"]} == set(Scope)
    assert granted == {"chat", "mcp"}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("PUT", "/v1/me", 405),
        ("GET", "/v1/audio/voices/nobody/samples/de.mp3", 404),
        ("GET", "/files/x", 403),
        ("PUT", "/files/x", 403),
        ("GET", "/v1/audio/voices", 200),
    ],
)
async def test_a_query_that_is_no_text_is_no_error_of_ours(api: Api, method: str, path: str, status: int) -> None:
    """HAProxy refuses such a line; whoever reaches a replica's own port comes past it."""
    key = (b"authorization", f"Bearer {api.everything}".encode())
    answer = await ask(app_over(api.service), method, path, [key], query=b"a=\xff")
    assert answer.status == status


async def test_host_and_path_tricks_open_nothing(api: Api) -> None:
    paths = dict.fromkeys(("/v1//models", "/V1/models"), 404)
    paths |= dict.fromkeys(("//v1/models", "/v1/../v1/models", "/v1/models/../me", "/v1/%6dodels"), 401)
    for path, status in paths.items():
        reply = await api.client.get(path, headers={"host": "a/?x="})
        assert reply.status_code == status, path


KEYS = 50

CHAT = [{"role": "user", "content": "say hello"}]

Serve = Callable[[Sequence[str]], Awaitable[list[int]]]
"""Serves requests of these owners, which all wait at one time, and returns them in the order of their turns."""


async def by_gate(owners: Sequence[str]) -> list[int]:
    queue, order = SlotQueue(lambda: 1, len(owners)), []

    async def ready() -> None:
        """The engine runs."""

    async def call(number: int) -> None:
        slot = await queue.enter(owners[number], ready, 60)
        order.append(number)
        queue.leave(slot)

    working = await queue.enter("org-0", ready, 60)
    calls = [asyncio.create_task(call(number)) for number in range(len(owners))]
    await until(lambda: queue.waiting == len(owners))
    queue.leave(working)
    await asyncio.gather(*calls)
    return order


async def by_semaphore(owners: Sequence[str]) -> list[int]:
    semaphore, order = FairSemaphore(1), []

    async def visit(number: int) -> None:
        async with semaphore.of(owners[number]):
            order.append(number)

    async with semaphore.of("another"):
        visits = [asyncio.create_task(visit(number)) for number in range(len(owners))]
        await until(lambda: semaphore.waiting == len(owners))
    await asyncio.gather(*visits)
    return order


async def by_batcher(owners: Sequence[str]) -> list[int]:
    all_wait, order = threading.Event(), []

    def run(items: list[str]) -> list[str]:
        all_wait.wait(10)
        order.extend(len(item) for item in items)
        return items

    batcher = TokenBatcher(run, slice_tokens=1, call_tokens=1, name="test")
    jobs = [asyncio.ensure_future(batcher.submit(["x" * number], owner)) for number, owner in enumerate(owners)]
    await asyncio.sleep(0)
    all_wait.set()
    await asyncio.gather(*jobs)
    batcher.close()
    return order


@pytest.mark.parametrize(
    ("path", "request_", "engines"),
    [
        pytest.param("/chat/completions", {"model": "obedient", "messages": CHAT}, [by_semaphore], id="grammars"),
        pytest.param("/completions", {"model": "obedient", "prompt": "hello"}, [], id="completions"),
        pytest.param("/audio/speech", {"input": "hello", "language": "en"}, [by_semaphore], id="phonemes"),
        pytest.param("/audio/transcriptions", None, [by_semaphore], id="transcription"),
        pytest.param("/decisions", BODIES["/decisions"], [by_semaphore, by_batcher], id="similarity"),
        pytest.param("/embeddings", BODIES["/embeddings"], [by_semaphore, by_batcher], id="embeddings"),
        pytest.param("/rerank", BODIES["/rerank"], [by_semaphore, by_batcher], id="rerank"),
    ],
)
async def test_fifty_keys_of_an_organisation_have_one_turn(
    api: Api, monkeypatch: pytest.MonkeyPatch, path: str, request_: dict[str, Any] | None, engines: list[Serve]
) -> None:
    calls, jobs = [], []

    def caught(method: Any) -> Any:
        def passed(engine: LocalEngine, name: Any, job: Any, *, context: CallContext) -> Any:
            calls.append(context.owner)
            jobs.append(job.owner)
            return method(engine, name, job, context=context)

        return passed

    for name in ("call", "stream"):
        monkeypatch.setattr(LocalEngine, name, caught(getattr(LocalEngine, name)))
    await api.organisation("rival")
    body: dict[str, Any] = {"json": request_} if request_ else {"files": {"file": ("memo.wav", wav())}}
    for key in [*[await api.key(*Scope) for _ in range(KEYS)], await api.key(*Scope, org="rival")]:
        reply = await api.send("POST", f"/v1{path}", key, **body)
        assert reply.status_code == 200, reply.text
    assert len(calls) == KEYS + 1
    assert jobs == calls
    for serve in [by_gate, *engines]:
        order = await serve(calls)
        assert sorted(order) == list(range(KEYS + 1))
        assert order.index(KEYS) <= 2, f"{order.index(KEYS)} requests of the other organisation came before"
