"""Access: keys, scopes, and the turns of organisations."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from autoscaling.engine import CallContext
from contract.access import TARIFFS, Scope
from tests.api.asgi import ask
from tests.api.bodies import BODIES
from tests.api.conftest import Api, app_over, refused
from tests.api.engines import LocalEngine
from tests.api.sounds import wav

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


KEYS = 5

CHAT = [{"role": "user", "content": "say hello"}]


@pytest.mark.parametrize(
    ("path", "request_"),
    [
        ("/chat/completions", {"model": "obedient", "messages": CHAT}),
        ("/completions", {"model": "obedient", "prompt": "hello"}),
        ("/audio/speech", {"input": "hello", "language": "en"}),
        ("/audio/transcriptions", None),
        ("/decisions", BODIES["/decisions"]),
        ("/embeddings", BODIES["/embeddings"]),
        ("/rerank", BODIES["/rerank"]),
    ],
)
async def test_all_keys_of_an_organisation_have_one_turn(
    api: Api, monkeypatch: pytest.MonkeyPatch, path: str, request_: dict[str, Any] | None
) -> None:
    """To gates and engines, which give owners turns, all keys of an organisation are one owner."""
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
    assert calls == [calls[0]] * KEYS + [calls[-1]]
    assert calls[0] != calls[-1]
    assert jobs == calls
