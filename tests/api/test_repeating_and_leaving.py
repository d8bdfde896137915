"""Requests that are sent again are done once and billed once; clients that leave pay for what an engine had begun."""

import asyncio
import json
import time
from typing import Any

import httpx
import pytest
from starlette.types import Message

from contract.access import Scope
from contract.errors import UPSTREAM_ERROR, UPSTREAM_TIMEOUT, ApiError
from contract.speech.engine import AudioBlock
from tests.api.asgi import exchange, http_scope
from tests.api.bodies import BODIES
from tests.api.conftest import Api, app_over, refused
from tests.api.engines import LocalEngine
from tests.catalogs import with_serving
from tests.waiting import cancelled, until

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
    orders = ["/audio/voices/designs", "/audio/voices/designs/{design_id}/adopt"]
    operations = [(paths.get(f"/v1{path}") or paths[path])["post"] for path in KEYED + orders]
    named = [[one["name"] for one in each["parameters"] if one["in"] != "path"] for each in operations]
    assert named == [["Idempotency-Key"]] * len(operations)


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


async def test_work_outlives_its_client_and_waits_for_the_next(api: Api, engine: LocalEngine) -> None:
    first = asyncio.create_task(post(api))
    await until(lambda: engine.callers)
    await cancelled(first)
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


async def left(api: Api, path: str, body: dict[str, Any], *items: Any) -> None:
    """Sends a request and leaves once the engine has it, and has given `items`."""
    acting = api.all_act(*items)
    asking = asyncio.create_task(api.send("POST", f"/v1{path}", json=body))
    await acting.asked.wait()
    while not asking.done():  # again at each turn of the loop, as anyio does for what runs in its task groups
        asking.cancel()
        await asyncio.sleep(0)
    await until(lambda: acting.under_way == 0)


TEXT = "It costs what the engine had begun. " * 20
LONG_CHAT = {"model": "obedient", "messages": [{"role": "user", "content": TEXT}]}
CHAT_TOKENS = len(TEXT) // 4

LEAVINGS: dict[str, tuple[str, dict[str, Any], dict[str, int]]] = {
    "chat": ("/chat/completions", LONG_CHAT, {"input_tokens": CHAT_TOKENS}),
    "a stream of chat": ("/chat/completions", LONG_CHAT | {"stream": True}, {"input_tokens": CHAT_TOKENS}),
    "responses": ("/responses", {"model": "obedient", "input": TEXT}, {"input_tokens": CHAT_TOKENS}),
    "messages": ("/messages", LONG_CHAT | {"max_tokens": 50}, {"input_tokens": CHAT_TOKENS}),
    "completions": ("/completions", {"model": "obedient", "prompt": [TEXT, "abcd"]}, {"input_tokens": CHAT_TOKENS + 1}),
    "token ids": ("/completions", {"model": "obedient", "prompt": [5] * 9}, {"input_tokens": 9}),
    "embeddings": ("/embeddings", {"model": "lengths", "input": ["abcde", "abcd"]}, {"input_tokens": 3}),
    "rerank": ("/rerank", {"model": "longest", "query": "abcd", "documents": ["ab", "abcdefgh"]}, {"input_tokens": 5}),
    "decisions": ("/decisions", {"state": TEXT, "preset": "colour-v1"}, {"questions": 1}),
    "speech": ("/audio/speech", {"input": "A short sentence."}, {"characters": 17}),
    "a long text": ("/audio/speech", {"input": TEXT}, {"characters": 100}),
    "speech in one piece": ("/audio/speech", {"input": TEXT, "provider": "qwen"}, {"characters": len(TEXT)}),
}


@pytest.mark.parametrize("name", LEAVINGS)
async def test_who_leaves_before_the_first_word_pays_for_what_was_begun(api: Api, name: str) -> None:
    path, body, quantities = LEAVINGS[name]
    await left(api, path, body)
    (line,) = await api.usage()
    assert line.quantities.items() >= quantities.items()
    model = next(model for model in api.service.catalog.models() if model.id == line.model)
    assert line.cost_micro_eur == model.cost_micro_eur(**line.quantities) > 0


async def test_who_leaves_while_it_waits_for_an_engine_pays_nothing(api: Api) -> None:
    engines = [api.engine(deployment) for deployment in api.service.engines]
    for engine in engines:
        engine.handle.sleep()
    for name, (path, body, _) in LEAVINGS.items():
        for engine in engines:
            engine.callers.clear()
        asking = asyncio.create_task(api.send("POST", f"/v1{path}", json=body))
        await until(lambda: any(engine.callers for engine in engines))
        await cancelled(asking)
        assert await api.usage() == [], name


@pytest.mark.parametrize("fault", [UPSTREAM_ERROR, UPSTREAM_TIMEOUT])
async def test_what_fails_before_the_first_word_costs_nothing(api: Api, fault: Any) -> None:
    api.all_act(error=fault())
    for name, (path, body, _) in LEAVINGS.items():
        assert (await api.send("POST", f"/v1{path}", json=body)).status_code >= 502, name
        assert await api.usage() == [], name


async def test_a_file_that_comes_at_its_end_is_billed_as_far_as_it_is_made(api: Api) -> None:
    made = (AudioBlock(b"", 180, 9.0), AudioBlock(b"", 360, 18.0))
    body = {"input": TEXT, "response_format": "flac"}
    await left(api, "/audio/speech", body, *made)
    (line,) = await api.usage()
    assert line.quantities == {"characters": 360}


@pytest.mark.parametrize(("fault", "is_billed"), [(UPSTREAM_TIMEOUT, True), (UPSTREAM_ERROR, False)])
async def test_a_stream_that_a_time_limit_ends_is_billed_as_far_as_it_went(
    api: Api, fault: Any, is_billed: bool
) -> None:
    api.all_act(AudioBlock(b"a file", 12, 1.0), error=fault())
    reply = await api.send("POST", "/v1/audio/speech", json={"input": TEXT, "stream_format": "sse"})
    assert fault().fault.code in reply.text
    assert [line.quantities for line in await api.usage()] == ([{"characters": 12}] if is_billed else [])


async def test_what_was_begun_fits_into_the_budget(api: Api) -> None:
    """As any charge beyond what was held."""
    await api.limit(10_000)
    for number in range(3):
        await left(api, *LEAVINGS["chat"][:2])
        assert len(await api.usage()) == number + 1
    me = await api.spend()
    assert me["spent_micro_eur"] == sum(line.cost_micro_eur for line in await api.usage())
    assert me["held_micro_eur"] == 0


WHOLE = {
    "chat": ("/chat/completions", lambda text: {"model": "obedient", "messages": [{"role": "user", "content": text}]}),
    "responses": ("/responses", lambda text: {"model": "obedient", "input": text}),
    "completions": ("/completions", lambda text: {"model": "obedient", "prompt": text}),
}


@pytest.mark.parametrize("name", WHOLE)
async def test_whole_answers_are_counted_for_those_who_have_left_one(api: Api, name: str) -> None:
    path, body = WHOLE[name]
    engine = api.engine()

    async def leave(text: str, counts: int) -> Any:
        before = len(await api.usage())
        asking = asyncio.create_task(api.send("POST", f"/v1{path}", json=body(text)))
        await until(lambda: engine.adapter.under_way and engine.given >= counts)
        await cancelled(asking)
        await until(lambda: engine.adapter.under_way == 0)
        assert len(await api.usage()) == before + 1
        return (await api.usage())[-1].quantities

    assert await leave("hold 30", counts=0) == {"input_tokens": 2}, "it crossed in one piece"
    counted = await leave("stream 10000 0.001", counts=5)
    assert counted["input_tokens"] == 7
    assert 5 <= counted["output_tokens"] + 1 < 10_000
    reply = await api.send("POST", f"/v1{path}", json=body("say hello"))
    assert (reply.status_code, "hello" in reply.text) == (200, True)
    assert (await api.usage())[-1].quantities == {"input_tokens": 7, "output_tokens": 3}


async def test_a_count_that_takes_longer_than_an_answer_may_is_504_and_billed_as_far_as_it_went(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = await api.caller()
    api.service.recent_disconnects.put(caller.org_id, True, time.monotonic())
    assert (await api.chat("stream 3 0.01")).status_code == 200
    chats = api.service.catalog.chat
    monkeypatch.setitem(chats, "obedient", with_serving(chats["obedient"], deadline_s=0.0))
    assert (await api.chat("stream 10000 0.001")).status_code == 504
    billed = (await api.usage())[-1].quantities
    assert billed is not None
    assert billed["input_tokens"] == 7
    assert 1 <= billed["output_tokens"] < 10_000


@pytest.mark.parametrize(("error", "is_counted"), [(UPSTREAM_TIMEOUT, True), (UPSTREAM_ERROR, False)])
async def test_answers_are_counted_once_one_has_run_into_its_time_limit(api: Api, error: Any, is_counted: bool) -> None:
    caller = await api.caller()
    api.all_act(error=error())
    assert (await api.chat("say hello")).status_code == error.status
    assert await api.usage() == []
    assert bool(api.service.recent_disconnects.get(caller.org_id, time.monotonic())) is is_counted
