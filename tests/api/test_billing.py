"""Billing: what an end costs, which streams a limit ends, and that no budget means that no engine is woken."""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import httpx
import pytest
from sqlalchemy import update

from autoscaling.engine import NOBODY, Timings, owner_name
from contract.access import Scope
from contract.errors import INVALID_REQUEST, ORG_SPEND_LIMIT, UPSTREAM_ERROR
from contract.limits import KEYLESS_REQUESTS
from deployments.ingress.context import Exchange, RequestContext
from state.accounts import api_keys
from state.billing import reservation
from state.billing.months import iso_s
from state.database.tables import api_keys as api_keys_table
from tests.api.bodies import BODIES, FORM_TYPE, FORMS
from tests.api.conftest import Api, refused
from tests.api.operations import ENDLESS, OPERATIONS
from tests.waiting import cancelled, settled, until


@pytest.fixture
async def context(api: Api) -> RequestContext:
    caller = await api.caller()
    return RequestContext(Exchange(api.service), caller, Timings())


@pytest.mark.parametrize(
    ("end", "used", "is_billed"),
    [
        (RuntimeError("a fault of ours"), 2, False),
        (UPSTREAM_ERROR(), 2, False),
        (INVALID_REQUEST("the engine refuses it"), 0, False),
        (INVALID_REQUEST("the engine refuses it"), 2, True),
        (ORG_SPEND_LIMIT("no more"), 2, True),
        (asyncio.CancelledError(), 2, True),
        (GeneratorExit(), 2, True),
        (None, 2, True),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
async def test_the_end_decides(
    api: Api, context: RequestContext, end: BaseException | None, used: int, is_billed: bool
) -> None:
    model = api.service.catalog.chat["obedient"]

    async def work() -> None:
        async with await context.bill(model, {"input_tokens": 100, "output_tokens": 100}) as account:
            if used:
                await account.progress(input_tokens=5, output_tokens=used)
            if end is not None:
                raise end

    if end is None:
        await work()
    else:
        with pytest.raises(type(end)):
            await work()
    lines = [(line.quantity, line.quantities, line.cost_micro_eur) for line in await api.usage()]
    assert lines == ([(7, {"input_tokens": 5, "output_tokens": 2}, 9)] if is_billed else [])


async def test_a_line_says_when_its_request_came_and_how_long_it_waited(
    api: Api, context: RequestContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = time.monotonic()
    monkeypatch.setattr(reservation.time, "monotonic", lambda: now_s)
    async with await context.bill(api.service.catalog.chat["obedient"], {"input_tokens": 100}) as account:
        now_s += 12.3456
        context.timings.queue, context.timings.load = 0.25, 2.0
        await account.settle(input_tokens=5)
    (line,) = await api.usage()
    assert (line.took_ms, line.waited_ms) == (12_346, 2_250)


async def post(api: Api, path: str, **fields: Any) -> httpx.Response:
    if path in FORMS:
        return await api.send("POST", f"/v1{path}", content=FORMS[path], headers={"Content-Type": FORM_TYPE.decode()})
    return await api.send("POST", f"/v1{path}", json=BODIES[path] | fields)


@pytest.mark.parametrize(
    ("path", "rendering", "fields"),
    [
        ("/chat/completions", "deployments.ingress.routes.chat.JSONResponse", {}),
        ("/embeddings", "deployments.ingress.routes.embeddings.reply", {}),
        ("/rerank", "deployments.ingress.routes.rerank.reply", {}),
        ("/decisions", "deployments.ingress.routes.decisions.JSONResponse", {}),
        ("/audio/speech", "deployments.ingress.flows.speech.PreparedSpeech.billed", {}),
        ("/audio/speech", "deployments.ingress.flows.speech.PreparedSpeech.billed", {"provider": "qwen"}),
        ("/audio/transcriptions", "deployments.ingress.routes.transcription.reply", {}),
    ],
)
async def test_an_answer_that_cannot_be_sent_is_not_billed(
    api: Api, monkeypatch: pytest.MonkeyPatch, path: str, rendering: str, fields: dict[str, str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError("out of range")

    with monkeypatch.context() as broken:
        broken.setattr(rendering, fail)
        assert (await post(api, path, **fields)).status_code == 500
    assert await api.usage() == []
    assert (await post(api, path, **fields)).status_code == 200
    assert len(await api.usage()) == 1


@pytest.mark.parametrize(
    ("path", "line", "quantities"),
    [
        ("/chat/completions", "chat:obedient", {"input_tokens": 7, "output_tokens": 3}),
        ("/embeddings", "embeddings:lengths", {"input_tokens": 6}),
        ("/rerank", "rerank:longest", {"input_tokens": 3}),
        ("/decisions", "decisions:decision-v1", {"input_tokens": 7, "questions": 1}),
        ("/systemone", "decisions:decision-v1", {"input_tokens": 7, "questions": 1}),
        ("/audio/speech", "speech:voxtral-mini-tts", {"characters": 5}),
        ("/audio/transcriptions", "transcription:voxtral-mini-transcribe", {"audio_seconds": 1}),
    ],
)
async def test_a_cost_can_be_computed_again_from_its_usage_line(
    api: Api, path: str, line: str, quantities: dict[str, int]
) -> None:
    reply = await post(api, path)
    assert reply.status_code == 200, reply.text
    (billed,) = await api.usage()
    assert (billed.line, billed.quantities, billed.quantity) == (line, quantities, sum(quantities.values()))
    model = next(model for model in api.service.catalog.models() if model.billing_key == line)
    assert model.cost_micro_eur(**quantities) == billed.cost_micro_eur > 0


EVENTS = 10_000
"""Of a stream that nobody waits for to its end."""


async def streaming(api: Api, key: str | None = None) -> asyncio.Task[httpx.Response]:
    """A stream that has begun."""
    asking = asyncio.create_task(api.chat(f"stream {EVENTS} 0.002", key, stream=True))
    engine = api.engine()
    before = engine.given
    await until(lambda: engine.given > before)
    return asking


async def ended(api: Api, asking: asyncio.Task[httpx.Response], code: str) -> None:
    """The stream ends with this error event, and is billed as far as it went."""
    async with asyncio.timeout(15):
        reply = await asking
    assert reply.status_code == 200
    assert f'"{code}"' in reply.text.strip().rpartition("\n\n")[2]
    assert "[DONE]" not in reply.text
    (line,) = await api.usage()
    assert 0 < line.quantities["output_tokens"] < EVENTS
    # What the engine made last was counted, and not sent.
    assert reply.text.count('"role"') == line.quantities["output_tokens"] - 1


@pytest.mark.parametrize("limit", [0, 1])
async def test_a_limit_that_is_set_ends_streams_that_began_without_one(
    api: Api, pass_cache_time: Callable[[], None], limit: int
) -> None:
    asking = await streaming(api)
    await api.limit(limit)
    pass_cache_time()
    await ended(api, asking, "org_spend_limit")
    spend = await api.spend()
    assert (spend["spent_micro_eur"], spend["held_micro_eur"]) == (limit, 0), "no more than the limit is charged"


async def test_a_limit_of_the_user_ends_its_streams_only(api: Api, pass_cache_time: Callable[[], None]) -> None:
    key = await api.key(Scope.CHAT, user="eve")
    asking = await streaming(api, key)
    await api.limit(0, user="eve")
    pass_cache_time()
    assert (await api.chat()).status_code == 200
    async with asyncio.timeout(15):
        assert '"user_spend_limit"' in (await asking).text


async def test_a_limit_with_room_is_held_against_and_lets_the_stream_go_on(
    api: Api, pass_cache_time: Callable[[], None]
) -> None:
    asking = await streaming(api)
    await api.limit(10**9)
    pass_cache_time()
    async with asyncio.timeout(15):
        while not (await api.spend())["held_micro_eur"]:
            assert not asking.done()
    await cancelled(asking)
    async with asyncio.timeout(15):
        while (spend := await api.spend())["held_micro_eur"]:
            assert asking.done(), "its bill is still being written"
    (line,) = await api.usage()
    assert (spend["spent_micro_eur"], spend["held_micro_eur"]) == (line.cost_micro_eur, 0)


async def test_a_key_that_is_revoked_ends_its_streams(api: Api, pass_cache_time: Callable[[], None]) -> None:
    key = await api.key(Scope.CHAT)
    asking = await streaming(api, key)
    await api.state.database.run(partial(api_keys.revoke, public_id=key.split("_")[1], now_s=1))
    pass_cache_time()
    await ended(api, asking, "invalid_api_key")
    assert (await api.chat(key=key)).status_code == 401
    assert (await api.chat()).status_code == 200


async def test_a_key_that_expires_ends_its_streams_at_that_moment(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    key, until_s = await api.key(Scope.CHAT), int(time.time()) + 3600
    expiry = update(api_keys_table).where(api_keys_table.c.public_id == key.split("_")[1]).values(expires_at=until_s)
    await api.state.database.run(lambda connection: connection.execute(expiry) and None)
    me = (await api.send("GET", "/v1/me", key)).json()
    assert me["key_expires_at"] == iso_s(until_s)
    asking = await streaming(api, key)
    # What is known of the key is in the cache, and its seconds there are not over.
    monkeypatch.setattr(api.state.clock, "now_s", float(until_s))
    await ended(api, asking, "expired_api_key")
    says = f"the API key expired at {iso_s(until_s)}; create another"
    refused(await api.chat(key=key), 401, "expired_api_key", None, says)
    assert (await api.chat()).status_code == 200


async def test_expired_keys_count_as_keys_that_open_nothing(api: Api) -> None:
    key = await api.key(Scope.CHAT)
    expiry = update(api_keys_table).where(api_keys_table.c.public_id == key.split("_")[1]).values(expires_at=1)
    await api.state.database.run(lambda connection: connection.execute(expiry) and None)
    replies = [await api.chat(key=key) for _ in range(KEYLESS_REQUESTS + 1)]
    assert [reply.status_code for reply in replies[-2:]] == [401, 429]
    assert (await api.chat()).status_code == 200


def watched(api: Api) -> Callable[[], list[str]]:
    """Gives what every engine was asked from now on; their adapters refuse all of it."""
    api.all_act(error=UPSTREAM_ERROR())
    engines = [api.engine(deployment) for deployment in api.service.engines]
    return lambda: [name for engine in engines for name in engine.handle.asked]


MESSAGES = [{"role": "user", "content": "say hello"}]
MORE: list[tuple[str, str, dict[str, Any] | None]] = [
    ("POST", "/v1/responses", {"model": "obedient", "input": "say hello", "truncation": "disabled"}),
    ("POST", "/v1/chat/completions", {"model": "obedient", "messages": MESSAGES, "stream": True}),
    ("POST", "/v1/tokenize", {"model": "obedient", "messages": MESSAGES}),
    ("POST", "/v1/audio/speech", {"input": "hello", "provider": "qwen"}),
    ("POST", "/v1/audio/transcriptions", {"upload_id": "none", "format_text": True}),
    ("GET", "/v1/audio/voices/M1/samples/de.mp3", None),
    *(
        ("POST", "/v1/mcp/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        for params in (
            {"name": "chat", "arguments": {"message": "hello"}},
            {"name": "search", "arguments": {"query": "a", "documents": ["b"]}},
        )
    ),
]
"""Schemas that the bodies of the routes do not reach."""


@pytest.mark.parametrize("runs", [False, True], ids=["cold", "running"])
@pytest.mark.parametrize("whose", ["organisation", "user"])
async def test_no_route_wakes_an_engine_for_who_may_spend_nothing(api: Api, runs: bool, whose: str) -> None:
    key = await api.key(*Scope, user="ann")
    await api.limit(0, user="ann" if whose == "user" else None)
    asked = watched(api)
    if not runs:
        for deployment in api.service.engines:
            engine = api.engine(deployment)
            engine.handle.sleep()
            engine.watch.failed.set()
            await engine.watch.refresh()
    walked = [(o.method, o.path, BODIES.get(o.plain)) for o in OPERATIONS if o.plain not in {*FORMS, *ENDLESS}]
    for method, path, body in walked + MORE:
        await api.send(method, path, key, json=body if method == "POST" else None)
        assert asked() == [], f"{method} {path}"
    for path, form in FORMS.items():
        await api.send("POST", f"/v1{path}", key, content=form, headers={"content-type": FORM_TYPE.decode()})
        assert asked() == [], path


async def test_every_kind_of_engine_is_asked_for_who_may_spend(api: Api) -> None:
    """The walk above would find one that is."""
    asked = watched(api)
    for method, path, body in MORE:
        await api.send(method, path, json=body)
    for path in ("/messages/count_tokens", "/tokenize", "/detokenize", "/audio/uploads"):
        await api.send("POST", f"/v1{path}", json=BODIES[path])
    await api.send("GET", "/v1/decisions/models")
    await settled()
    names = {"tokenize", "detokenize", "warm", "measured", "speak_whole", "stream", "complete"}
    assert names <= set(asked())


async def test_a_micro_eur_that_is_left_counts_tokens_and_what_is_held_for_others_is_not_left(api: Api) -> None:
    await api.limit(0)
    reply = await api.send("POST", "/v1/tokenize", await api.key(Scope.CHAT), json=BODIES["/tokenize"])
    refused(reply, 402, "org_spend_limit")
    await api.limit(1)
    caller = await api.state.accounts.authenticate(f"Bearer {await api.key(Scope.CHAT)}")
    hold = await api.state.ledger.reserve(caller, line="chat:x", model="x", estimate_micro_eur=1, request_id="r")
    key = await api.key(Scope.CHAT)
    assert (await api.send("POST", "/v1/tokenize", key, json=BODIES["/tokenize"])).status_code == 402
    await hold.void()
    assert (await api.send("POST", "/v1/tokenize", key, json=BODIES["/tokenize"])).status_code == 200


async def test_samples_are_made_in_the_turn_of_their_callers_organisation(api: Api) -> None:
    engine = api.engine("speech-supertonic-3")
    caller = await api.caller()
    for key, owner in ((api.everything, owner_name(caller.org_id)), ("", NOBODY)):
        reply = await api.client.get(
            f"/v1/audio/voices/M1/samples/{'de' if key else 'en'}.mp3",
            headers={"Authorization": f"Bearer {key}"} if key else {},
        )
        assert reply.status_code == 200
        assert engine.callers[-1] == owner
