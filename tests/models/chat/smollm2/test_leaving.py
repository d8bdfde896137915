"""Clients that leave, answers that are under way, and an engine that stands still."""

from __future__ import annotations

import asyncio
import threading

import pytest

from contract.chat.engine import ChatBatch, ChatReply
from models.chat import VllmChat
from tests.models.chat.smollm2.asking import ask, batches, idle
from tests.waiting import until


async def test_a_client_that_leaves_a_stream_frees_the_engine(chat: VllmChat) -> None:
    stream = chat.stream(ask("Count to a thousand.", n=2, max_tokens=400))
    async for batch in stream:
        if batch.completion_tokens >= 4:
            break
    assert chat.unfinished
    await stream.aclose()  # type: ignore[attr-defined]
    await idle(chat)


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_cancelled_call_frees_the_engine(chat: VllmChat, streamed: bool) -> None:
    job = ask("Count to a thousand.", max_tokens=400)
    task = asyncio.ensure_future(batches(chat, job) if streamed else chat.complete(job))
    await until(lambda: chat.unfinished > 0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await idle(chat)


@pytest.mark.usefixtures("often")
async def test_a_whole_answer_says_how_far_it_is(chat: VllmChat) -> None:
    job = ask("Count to a thousand.", max_tokens=40)
    *counts, reply = [count async for count in chat.counted(job)]
    assert isinstance(reply, ChatReply)
    assert reply.text == (await chat.complete(job)).text
    so_far = [count.completion_tokens for count in counts if isinstance(count, ChatBatch)]
    assert len(so_far) == len(counts) > 0
    assert sorted({*so_far}) == so_far
    assert 0 < so_far[0] <= so_far[-1] <= reply.completion_tokens
    assert {count.prompt_tokens for count in counts} == {reply.prompt_tokens}


@pytest.mark.usefixtures("often")
async def test_a_client_that_leaves_a_counted_answer_frees_the_engine(chat: VllmChat) -> None:
    counts = chat.counted(ask("Count to a thousand.", max_tokens=400))
    assert (await anext(counts)).completion_tokens > 0
    assert chat.unfinished
    await counts.aclose()
    await idle(chat)


async def test_a_healthy_engine_that_stands_still_is_not_healthy(
    chat: VllmChat, monkeypatch: pytest.MonkeyPatch
) -> None:
    await chat.check_health()
    core = chat._engine.engine_core
    held, go_on = threading.Event(), threading.Event()
    core._command(lambda: (held.set(), go_on.wait()))
    try:
        assert held.wait(30)
        pending = asyncio.ensure_future(chat.complete(ask(max_tokens=1)))
        await until(lambda: core.busy)
        await chat.check_health()
        monkeypatch.setattr(core.stalls, "most_s", 0.0)
        with pytest.raises(RuntimeError, match="no step"):
            await chat.check_health()
    finally:
        go_on.set()
    await pending
