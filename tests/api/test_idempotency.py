"""`Idempotency-Key` on the routes that bill: done once, billed once, answered as often as asked."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import httpx2
import openai
import pytest
from starlette.types import Message

from contract.access import Scope
from contract.errors import ApiError
from tests.api.asgi import exchange, http_scope
from tests.api.bodies import BODIES
from tests.api.conftest import Api, app_over, refused
from tests.api.engines import LocalEngine
from tests.waiting import until

CHAT = "/chat/completions"
UNKEYED = ("/audio/speech", "/messages/count_tokens", "/tokenize", "/detokenize", "/realtime/client_secrets")
KEYED = [path for path in BODIES if path not in UNKEYED and "/designs" not in path and "/mcp" not in path]
"""Speech is a stream, MCP has a protocol of its own, tokens are counted for nothing, and orders of voices are billed
later (`test_designs.py`)."""
STORED = [path for path in KEYED if path not in ("/decisions", "/systemone")]
"""Answers of decisions are never stored."""
FREE = ("/audio/uploads",)


@pytest.fixture
def engine(api: Api) -> LocalEngine:
    """The chat engine, which has no replica until it `may_start`."""
    engine: LocalEngine = api.engine()
    engine.handle.sleep()
    return engine


async def post(api: Api, path: str = CHAT, idempotency_key: str = "k1", **fields: Any) -> httpx.Response:
    """The route's body, changed by `fields`."""
    headers = {"idempotency-key": idempotency_key}
    return await api.send("POST", f"/v1{path}", json=BODIES[path] | fields, headers=headers)


def said(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


@pytest.mark.parametrize("path", STORED)
async def test_repetition_gets_the_first_answer_and_no_second_bill(api: Api, path: str) -> None:
    first = await post(api, path)
    second = await api.send("POST", path, json=BODIES[path], headers={"Idempotency-Key": "k1"})
    assert (first.status_code, second.status_code) == (200, 200)
    assert (second.content, second.headers["content-type"]) == (first.content, first.headers["content-type"])
    assert second.headers["idempotent-replayed"] == "true"
    assert "idempotent-replayed" not in first.headers
    assert second.headers["x-request-id"] != first.headers["x-request-id"]
    assert len(await api.usage()) == (path not in FREE)


async def test_openapi_names_the_header(document: dict[str, Any]) -> None:
    paths = document["paths"]
    operations = [(paths.get(f"/v1{path}") or paths[path])["post"] for path in KEYED]
    assert [[one["name"] for one in each["parameters"]] for each in operations] == [["Idempotency-Key"]] * len(KEYED)


async def test_while_it_runs_it_is_409_and_may_be_sent_again_but_with_another_body_it_is_422(
    api: Api, engine: LocalEngine
) -> None:
    first = asyncio.create_task(post(api))
    await until(lambda: engine.callers)
    second = await post(api)
    refused(second, 409, "idempotency_in_progress")
    assert (second.headers["x-should-retry"], second.headers["retry-after"]) == ("true", "1")
    refused(await post(api, messages=said("other")), 422, "idempotency_mismatch")
    engine.handle.may_start.set()
    assert (await first).status_code == 200
    refused(await post(api, messages=said("other")), 422, "idempotency_mismatch")
    assert len(engine.callers) == 1


async def test_the_official_sdk_sends_it_again_until_it_gets_the_first_answer(api: Api, engine: LocalEngine) -> None:
    first = asyncio.create_task(post(api))
    await until(lambda: engine.callers)
    refused: list[httpx2.Response] = []

    async def note(reply: httpx2.Response) -> None:
        if reply.status_code == 409:
            refused.append(reply)
            engine.handle.may_start.set()

    transport = httpx2.ASGITransport(api.app)
    async with httpx2.AsyncClient(transport=transport, event_hooks={"response": [note]}) as http:
        client = openai.AsyncOpenAI(api_key=api.everything, base_url="http://test/v1", http_client=http)
        sent = client.chat.completions.with_raw_response
        again = await sent.create(**BODIES[CHAT], extra_headers={"Idempotency-Key": "k1"})
    assert refused
    assert (again.headers["idempotent-replayed"], again.retries_taken) == ("true", len(refused))
    assert again.content == (await first).content
    assert (len(engine.callers), len(await api.usage())) == (1, 1)


async def test_work_outlives_its_client_and_waits_for_the_next(api: Api, engine: LocalEngine) -> None:
    first = asyncio.create_task(post(api))
    await until(lambda: engine.callers)
    first.cancel()
    await asyncio.wait({first})
    engine.handle.may_start.set()
    while (reply := await post(api)).status_code == 409:
        pass
    assert reply.headers["idempotent-replayed"] == "true"
    assert (len(engine.callers), len(await api.usage())) == (1, 1)


async def test_keys_of_other_callers_and_paths_are_others(api: Api) -> None:
    await post(api)
    other = await api.key(*Scope)
    again = await api.send("POST", CHAT, other, json=BODIES[CHAT], headers={"idempotency-key": "k1"})
    assert "idempotent-replayed" not in again.headers
    assert (await post(api, "/embeddings")).status_code == 200
    assert len(await api.usage()) == 3


async def test_errors_and_limits_are_not_kept_and_invalid_bodies_claim_no_key(api: Api) -> None:
    changes: list[tuple[dict[str, Any], int]] = [
        ({"messages": []}, 400),
        ({"temperature": 9}, 400),
        ({"model": "unknown"}, 404),
        ({"messages": said("fail")}, 502),
        ({"messages": said("refuse")}, 400),
    ]
    for fields, status in changes:
        assert (await post(api, **fields)).status_code == status
    await api.limit(0)
    limited = await api.key(Scope.CHAT)
    for _ in range(2):
        reply = await api.send("POST", CHAT, limited, json=BODIES[CHAT], headers={"idempotency-key": "k1"})
        assert (reply.status_code, "idempotent-replayed" in reply.headers) == (402, False)
    reply = await post(api)
    assert (reply.status_code, "idempotent-replayed" in reply.headers) == (200, False)


async def test_a_key_is_one_and_visible_ascii(api: Api) -> None:
    """All malformed ones: tests/state/test_idempotency.py."""
    for keys in (["~" * 256], ["a b"], ["\xe9"], ["a\x00"], [""], ["a", "b"]):
        headers = [(b"authorization", f"Bearer {api.everything}".encode())]
        headers += [(b"idempotency-key", key.encode("latin-1")) for key in keys]
        reply = await api.client.post(CHAT, json=BODIES[CHAT], headers=headers)
        refused(reply, 400, "invalid_request_error", "Idempotency-Key")


async def test_streams_ignore_the_header(api: Api) -> None:
    for _ in range(2):
        reply = await post(api, messages=said("stream 2 0"), stream=True)
        assert (reply.status_code, "idempotent-replayed" in reply.headers) == (200, False)
        assert "[DONE]" in reply.text
    assert len(await api.usage()) == 2
    assert "idempotent-replayed" not in (await post(api)).headers


async def test_an_answer_that_cannot_be_kept_still_goes_out(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object) -> None:
        raise ApiError("STATE_UNAVAILABLE", "full")

    monkeypatch.setattr("state.idempotency.Attempt.finish", refuse)
    assert (await post(api)).status_code == 200
    assert (await post(api)).status_code == 409
    assert len(await api.usage()) == 1


async def test_what_a_request_holds_is_given_back_once_its_reply_is_sent(api: Api) -> None:
    requests: list[int] = []

    async def sent(message: Message) -> None:
        requests.append(api.service.concurrency.requests)

    text = json.dumps(BODIES[CHAT]).encode()
    headers = [(b"authorization", f"Bearer {api.everything}".encode()), (b"content-length", b"%d" % len(text))]
    scope = http_scope("POST", f"/v1{CHAT}", [*headers, (b"idempotency-key", b"k1")])
    await exchange(app_over(api.service), scope, text, sent)
    assert requests == [1, 1]
    assert api.service.concurrency.requests == 0
