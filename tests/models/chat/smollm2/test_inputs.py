"""Inputs of a chat: what is cut, and what is found again of an earlier one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from contract.chat.engine import ChatJob
from models.chat import VllmChat
from tests.models.chat.smollm2.asking import PARIS, WINDOW, ask, batches, chunks_of


async def test_a_long_input_is_cut_at_the_top_and_the_reply_tells(chat: VllmChat) -> None:
    job = ask("word " * 3 * WINDOW + PARIS, max_tokens=12, stream_options={"include_usage": True})
    reply = await chat.complete(job)
    assert reply.prompt_tokens == WINDOW - 12
    assert reply.cut_tokens == reply.body["usage"]["prompt_tokens_cut"] > 2 * WINDOW
    sent = await batches(chat, job)
    assert {batch.cut_tokens for batch in sent} == {reply.cut_tokens}
    assert chunks_of(sent)[-1]["usage"] == reply.body["usage"] | {
        "prompt_tokens_details": {"cached_tokens": sent[-1].cached_tokens}
    }
    assert "prompt_tokens_cut" not in (await chat.complete(ask(max_tokens=1))).body["usage"]
    assert reply.completion_tokens >= 1
    # Without a budget a quarter of the window stays for the answer.
    reply = await chat.complete(ask("word " * 3 * WINDOW, max_tokens=None))
    assert reply.prompt_tokens == WINDOW - WINDOW // 4


async def test_an_input_that_fits_is_not_cut_and_its_budget_is(chat: VllmChat) -> None:
    empty = (await chat.complete(ask("", max_tokens=1))).prompt_tokens
    for prompt_tokens in (WINDOW - 2, WINDOW - 1):
        job = ask(("word " * (prompt_tokens - empty)).strip(), max_tokens=10 * WINDOW, stream=True)
        last = (await batches(chat, job))[-1]
        assert last.prompt_tokens == prompt_tokens
        assert 1 <= last.completion_tokens <= WINDOW - prompt_tokens
    cut = (await batches(chat, ask(("word " * (WINDOW - empty)).strip(), max_tokens=5)))[-1]
    assert cut.prompt_tokens == WINDOW - 5


async def test_what_an_organisation_has_sent_before_is_counted_and_nobody_elses(chat: VllmChat) -> None:
    def again(salt: str, **fields: Any) -> ChatJob:
        return replace(ask("Tell me about rivers. " * 40, max_tokens=2, **fields), owner=salt)

    for salt in ("one", "two"):
        first, second = await chat.complete(again(salt)), await chat.complete(again(salt))
        assert first.cached_tokens == 0
        assert first.prompt_tokens - 128 <= second.cached_tokens < second.prompt_tokens
        assert second.body["usage"]["prompt_tokens_details"] == {"cached_tokens": second.cached_tokens}
    sent = await batches(chat, again("one", stream_options={"include_usage": True}))
    assert sent[0].cached_tokens == sent[-1].cached_tokens == second.cached_tokens
    assert chunks_of(sent)[-1]["usage"]["prompt_tokens_details"] == {"cached_tokens": second.cached_tokens}


@pytest.mark.parametrize("streamed", [False, True])
async def test_several_answers_find_nothing_cached_that_they_left_themselves(chat: VllmChat, streamed: bool) -> None:
    job = replace(ask("Tell me of seas. " * 40, n=3, temperature=1, max_tokens=2), owner=f"new-{streamed}")
    first = (await batches(chat, job))[-1] if streamed else await chat.complete(job)
    again = (await batches(chat, job))[-1] if streamed else await chat.complete(job)
    assert first.cached_tokens == 0 < again.cached_tokens < again.prompt_tokens
