"""Thoughts on, off and for so long, with a tiny model that would think for ever."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from contract.catalog import ThinkingOptions
from contract.chat.engine import ChatJob
from contract.chat.request import ChatRequest
from contract.wires import contents
from models.chat import VllmChat
from tests.models import tiny_models
from tests.models.chat.engines import stanza
from tests.models.refusals import refused
from tests.waiting import until

BUDGET, ANSWER = 8, 24


@pytest.fixture(scope="module")
async def thinks(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[VllmChat]:
    thinking = ThinkingOptions(switch="enable_thinking", levels=("low", "high"), budgets={"low": BUDGET})
    model = stanza("thinks", 256, {}, tier="reasoning", reasoning_parser="qwen3", thinking=thinking)
    engine = VllmChat(model, tiny_models.thinker(tmp_path_factory.mktemp("weights")))
    yield engine
    engine.close()


def ask(**fields: Any) -> ChatJob:
    body = {"model": "thinks", "messages": [{"role": "user", "content": "Why?"}], "max_tokens": ANSWER}
    return ChatJob(ChatRequest.model_validate(body | {"temperature": 0} | fields))


async def answered(thinks: VllmChat, **fields: Any) -> tuple[dict[str, Any], dict[str, Any], int]:
    reply = await thinks.complete(ask(**fields))
    return reply.body["choices"][0]["message"], dict(reply.body["usage"]), reply.prompt_tokens


def reasoning_tokens(usage: dict[str, Any]) -> int:
    return int(usage["completion_tokens_details"]["reasoning_tokens"])


async def test_it_thinks_until_it_is_told_not_to(thinks: VllmChat) -> None:
    message, usage, _ = await answered(thinks)
    assert not message["content"]
    assert message["reasoning_content"]
    assert reasoning_tokens(usage) == usage["completion_tokens"] == ANSWER
    for off in ({"reasoning_effort": "none"}, {"chat_template_kwargs": {"enable_thinking": False}}):
        message, usage, _ = await answered(thinks, **off)
        assert message["content"]
        assert "reasoning_content" not in message
        assert reasoning_tokens(usage) == 0


async def test_an_effort_is_a_level_of_the_template_and_thoughts_end_with_their_budget(thinks: VllmChat) -> None:
    silent = (await answered(thinks))[2]
    low, high = [await answered(thinks, reasoning_effort=effort) for effort in ("low", "max")]
    assert low[2] == high[2] > silent
    message, usage, _ = low
    assert all(map(message.get, ("content", "reasoning_content")))
    assert BUDGET - 1 <= reasoning_tokens(usage) <= BUDGET  # the token that ends them is one of them
    assert usage["completion_tokens"] == ANSWER


async def test_a_stream_counts_thoughts_too(thinks: VllmChat) -> None:
    """Of each answer at most one token less than a whole one does: one whose text never came."""
    for fields in ({}, {"n": 2}, {"reasoning_effort": "low"}, {"reasoning_effort": "none"}):
        whole = (await answered(thinks, **fields))[1]
        options = {"stream": True, "stream_options": {"include_usage": True}}
        sent = [batch async for batch in thinks.stream(ask(**options, **fields))]
        (last,) = contents(sent[-1].events)
        assert 0 <= reasoning_tokens(whole) - reasoning_tokens(last["usage"]) <= fields.get("n", 1)
        assert last["usage"]["completion_tokens"] == whole["completion_tokens"]


async def test_a_variable_that_is_not_allowed_never_reaches_the_template(thinks: VllmChat) -> None:
    with refused(400) as caught:
        await thinks.complete(ask(chat_template_kwargs={"messages": []}))
    assert "`enable_thinking`" in caught.value.message


async def test_a_request_in_flight_fails_when_the_engine_closes(thinks: VllmChat) -> None:  # the last: it is closed
    answering = asyncio.create_task(thinks.complete(ask(max_tokens=200)))
    await until(lambda: thinks.unfinished)
    thinks.close()
    with refused("upstream_error"):
        await answering
