"""What a chat tells of its tokens, and what they cost: found in the cache, and cut from the top of the input."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from contract.catalog import ThinkingOptions
from contract.chat.engine import ChatBatch, ChatJob, ChatReply
from state import State
from tests.api.conftest import Api, refused, serving
from tests.catalogs import PRICE, behaving, chat
from tests.engines import ObedientChat

CACHED, CUT = 4, 90


class Counting(ObedientChat):
    """Found 4 of its 7 prompt tokens in the cache, and lost 90 of a longer one; none where there is a seed."""

    async def complete(self, job: ChatJob) -> ChatReply:
        cut = 0 if job.request.seed else CUT
        return replace(await super().complete(job), cached_tokens=CACHED, cut_tokens=cut)

    async def stream(self, job: ChatJob) -> AsyncGenerator[ChatBatch, None]:
        async for batch in super().stream(job):
            yield batch._replace(cached_tokens=CACHED, cut_tokens=0 if job.request.seed else CUT)


@asynccontextmanager
async def counting(state: State, prefix: str = "x-service-", **price: int) -> AsyncIterator[Api]:
    """An API over `Counting` at these further prices."""
    model = chat("obedient")
    assert model.serving
    runs = model.serving.model_copy(update={"adapter": f"{__name__}:Counting"})
    thinking = ThinkingOptions(switch="enable_thinking")
    model = model.model_copy(update={"serving": runs, "price": PRICE | price, "thinking": thinking})
    async with serving(behaving(obedient=model), state, header_prefix=prefix) as api:
        yield api


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("price", "input_micro_eur"),
    [({}, 7), ({"cached_input_tokens": 0}, 3), ({"cached_input_tokens": 250_000}, 4)],
)
async def test_cached_input_has_its_own_price_where_the_stanza_has_one(
    state: State, price: dict[str, int], input_micro_eur: int, streamed: bool
) -> None:
    async with counting(state, **price) as api:
        await api.chat("stream 3 0" if streamed else "say hello", stream=streamed)
        (line,) = await api.usage()
    assert line.cost_micro_eur == input_micro_eur + 3 * 2
    assert line.quantity == 10


async def test_a_budget_is_reserved_as_if_nothing_were_cached(state: State) -> None:
    async with counting(state, cached_input_tokens=0) as api:
        whole = 512 + 16 + len("say hello") + 2
        await api.limit(whole - 1)
        assert (await api.chat(max_tokens=1)).status_code == 402
        await api.limit(whole)
        assert (await api.chat(max_tokens=1)).status_code == 200


async def test_a_repeated_answer_still_tells_that_its_input_was_cut(state: State) -> None:
    async with counting(state, "x-acme-") as api:
        body = {"model": "obedient", "messages": [{"role": "user", "content": "say hello"}]}
        for replayed in (None, "true"):
            reply = await api.send("POST", "/v1/chat/completions", json=body, headers={"idempotency-key": "a" * 16})
            assert reply.headers.get("idempotent-replayed") == replayed
            assert reply.headers["x-acme-input-cut"] == str(CUT)


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_template_variable_that_is_not_allowed_is_refused_before_the_engine(
    state: State, streamed: bool
) -> None:
    async with counting(state) as api:
        reply = await api.chat(stream=streamed, chat_template_kwargs={"add_generation_prompt": False})
        place = "chat_template_kwargs.add_generation_prompt"
        refused(reply, 400, "invalid_request_error", place, "`enable_thinking`")
        assert await api.usage() == []
        allowed = await api.chat(stream=streamed, chat_template_kwargs={"enable_thinking": False})
        assert allowed.status_code == 200
