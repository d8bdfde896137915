"""Clients that leave pay for what an engine had begun, and for nothing that it had not."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from contract.catalog import Model
from contract.errors import UPSTREAM_ERROR, UPSTREAM_TIMEOUT
from contract.speech.engine import AudioBlock
from tests.api.conftest import Api
from tests.waiting import until


async def left(api: Api, path: str, body: dict[str, Any], *items: Any) -> None:
    """Sends a request and leaves once the engine has it, and has given `items`."""
    acting = api.all_act(*items)
    asking = asyncio.create_task(api.send("POST", f"/v1{path}", json=body))
    await acting.asked.wait()
    asking.cancel()
    await asyncio.wait([asking])
    await until(lambda: acting.under_way == 0)


TEXT = "It costs what the engine had begun. " * 20
CHAT = {"model": "obedient", "messages": [{"role": "user", "content": TEXT}]}
CHAT_TOKENS = len(TEXT) // 4

LEAVINGS: dict[str, tuple[str, dict[str, Any], dict[str, int]]] = {
    "chat": ("/chat/completions", CHAT, {"input_tokens": CHAT_TOKENS}),
    "a stream of chat": ("/chat/completions", CHAT | {"stream": True}, {"input_tokens": CHAT_TOKENS}),
    "responses": ("/responses", {"model": "obedient", "input": TEXT}, {"input_tokens": CHAT_TOKENS}),
    "messages": ("/messages", CHAT | {"max_tokens": 50}, {"input_tokens": CHAT_TOKENS}),
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
    assert line.cost_micro_eur == _model(api, line.model).cost_micro_eur(**line.quantities) > 0


@pytest.mark.parametrize("name", LEAVINGS)
async def test_who_leaves_while_it_waits_for_an_engine_pays_nothing(api: Api, name: str) -> None:
    path, body, _ = LEAVINGS[name]
    engines = [api.engine(deployment) for deployment in api.service.engines]
    for engine in engines:
        engine.handle.sleep()
    asking = asyncio.create_task(api.send("POST", f"/v1{path}", json=body))
    await until(lambda: any("warm" in engine.handle.asked for engine in engines))
    asking.cancel()
    await asyncio.wait([asking])
    assert await api.usage() == []


@pytest.mark.parametrize("name", LEAVINGS)
@pytest.mark.parametrize("fault", [UPSTREAM_ERROR, UPSTREAM_TIMEOUT])
async def test_what_fails_before_the_first_word_costs_nothing(api: Api, name: str, fault: Any) -> None:
    path, body, _ = LEAVINGS[name]
    api.all_act(error=fault())
    assert (await api.send("POST", f"/v1{path}", json=body)).status_code >= 502
    assert await api.usage() == []


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
        asking.cancel()
        await asyncio.wait([asking])
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
    model = api.service.catalog.chat["obedient"]
    assert model.serving
    late = model.model_copy(update={"serving": model.serving.model_copy(update={"deadline_s": 0.0})})
    monkeypatch.setitem(api.service.catalog.chat, "obedient", late)
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


def _model(api: Api, id: str) -> Model:
    return next(model for model in api.service.catalog.models() if model.id == id)
