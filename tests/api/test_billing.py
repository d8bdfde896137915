"""Who pays for what is left in the middle: nobody for a fault of ours, the caller for what was produced until then."""

from __future__ import annotations

import asyncio
import time

import pytest

from autoscaling.engine import Timings
from contract.errors import INVALID_REQUEST, ORG_SPEND_LIMIT, UPSTREAM_ERROR
from deployments.ingress.context import RequestContext, Trace
from state.billing import reservation
from tests.api.bodies import BODIES, FORM_TYPE, FORMS
from tests.api.conftest import Api


@pytest.fixture
async def context(api: Api) -> RequestContext:
    caller = await api.caller()
    return RequestContext(Trace(api.service), caller, Timings())


@pytest.mark.parametrize(
    ("end", "is_billed"),
    [
        (RuntimeError("a fault of ours"), False),
        (UPSTREAM_ERROR(), False),
        (INVALID_REQUEST("the engine refuses it"), True),
        (ORG_SPEND_LIMIT("no more"), True),
        (asyncio.CancelledError(), True),
        (GeneratorExit(), True),
        (None, True),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
async def test_the_end_decides(api: Api, context: RequestContext, end: BaseException | None, is_billed: bool) -> None:
    model = api.service.catalog.chat["obedient"]

    async def work() -> None:
        async with await context.bill(model, {"input_tokens": 100, "output_tokens": 100}) as account:
            await account.progress(input_tokens=5, output_tokens=2)
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


async def test_a_refusal_before_anything_was_produced_costs_nothing(api: Api, context: RequestContext) -> None:
    model = api.service.catalog.chat["obedient"]
    with pytest.raises(Exception, match="refuses"):
        async with await context.bill(model, {"input_tokens": 100}):
            raise INVALID_REQUEST("the engine refuses it")
    assert await api.usage() == []


@pytest.mark.parametrize(
    ("path", "rendering"),
    [
        ("/chat/completions", "deployments.ingress.routes.chat.JSONResponse"),
        ("/embeddings", "deployments.ingress.routes.embeddings.reply"),
        ("/rerank", "deployments.ingress.routes.rerank.reply"),
        ("/decisions", "deployments.ingress.routes.decisions.JSONResponse"),
    ],
)
async def test_an_answer_that_cannot_be_sent_is_not_billed(
    api: Api, monkeypatch: pytest.MonkeyPatch, path: str, rendering: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError("out of range")

    with monkeypatch.context() as broken:
        broken.setattr(rendering, fail)
        assert (await api.send("POST", f"/v1{path}", json=BODIES[path])).status_code == 500
    assert await api.usage() == []
    assert (await api.send("POST", f"/v1{path}", json=BODIES[path])).status_code == 200
    assert len(await api.usage()) == 1


@pytest.mark.parametrize(
    ("path", "units"),
    [
        ("/chat/completions", {"input_tokens", "output_tokens"}),
        ("/embeddings", {"input_tokens"}),
        ("/rerank", {"input_tokens"}),
        ("/decisions", {"input_tokens", "questions"}),
        ("/systemone", {"input_tokens", "questions"}),
        ("/audio/speech", {"characters"}),
        ("/audio/transcriptions", {"audio_seconds"}),
    ],
)
async def test_a_cost_can_be_computed_again_from_its_usage_line(api: Api, path: str, units: set[str]) -> None:
    if path in FORMS:
        reply = await api.send("POST", f"/v1{path}", content=FORMS[path], headers={"Content-Type": FORM_TYPE.decode()})
    else:
        reply = await api.send("POST", f"/v1{path}", json=BODIES[path])
    assert reply.status_code == 200, reply.text
    (line,) = await api.usage()
    model = next(model for model in api.service.catalog.models() if model.billing_key == line.line)
    assert set(line.quantities) == units <= set(model.price)
    assert sum(line.quantities.values()) == line.quantity
    assert model.cost_micro_eur(**line.quantities) == line.cost_micro_eur > 0


async def test_a_stream_says_in_its_usage_line_what_its_cost_is_made_of(api: Api) -> None:
    reply = await api.chat("say hello", stream=True)
    assert reply.status_code == 200
    (line,) = await api.usage()
    model = api.service.catalog.chat["obedient"]
    assert set(line.quantities) == {"input_tokens", "output_tokens"}
    assert model.cost_micro_eur(**line.quantities) == line.cost_micro_eur
