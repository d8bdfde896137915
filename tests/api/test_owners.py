"""Engines serve organisations in turn: fifty keys of one have one turn beside a key of another.

The owners of calls and of jobs are caught behind the true routes, and then served by what the engines serve them with.
The decoder has a test of its own, tests/api/test_decoder_turns.py.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from autoscaling.engine import CallContext
from autoscaling.queue import SlotQueue
from concurrency.semaphore import FairSemaphore
from contract.access import Scope
from models.batching import TokenBatcher
from tests.api.bodies import BODIES
from tests.api.conftest import Api
from tests.api.engines import LocalEngine
from tests.api.sounds import wav
from tests.waiting import until

KEYS = 50

CHAT = [{"role": "user", "content": "say hello"}]

Serve = Callable[[Sequence[str]], Awaitable[list[int]]]
"""Serves requests of these owners, which all wait at one time, and returns them in the order of their turns."""


async def by_gate(owners: Sequence[str]) -> list[int]:
    queue, order = SlotQueue(lambda: 1, len(owners)), []

    async def ready() -> None:
        """The engine runs."""

    async def call(number: int) -> None:
        slot = await queue.enter(owners[number], ready, 60)
        order.append(number)
        queue.leave(slot)

    working = await queue.enter("org-0", ready, 60)
    calls = [asyncio.create_task(call(number)) for number in range(len(owners))]
    await until(lambda: queue.waiting == len(owners))
    queue.leave(working)
    await asyncio.gather(*calls)
    return order


async def by_semaphore(owners: Sequence[str]) -> list[int]:
    semaphore, order = FairSemaphore(1), []

    async def visit(number: int) -> None:
        async with semaphore.of(owners[number]):
            order.append(number)

    async with semaphore.of("another"):
        visits = [asyncio.create_task(visit(number)) for number in range(len(owners))]
        await until(lambda: semaphore.waiting == len(owners))
    await asyncio.gather(*visits)
    return order


async def by_batcher(owners: Sequence[str]) -> list[int]:
    all_wait, order = threading.Event(), []

    def run(items: list[str]) -> list[str]:
        all_wait.wait(10)
        order.extend(len(item) for item in items)
        return items

    batcher = TokenBatcher(run, slice_tokens=1, call_tokens=1, name="test")
    jobs = [asyncio.ensure_future(batcher.submit(["x" * number], owner)) for number, owner in enumerate(owners)]
    await asyncio.sleep(0)
    all_wait.set()
    await asyncio.gather(*jobs)
    batcher.close()
    return order


@pytest.mark.parametrize(
    ("path", "request_", "engines"),
    [
        pytest.param("/chat/completions", {"model": "obedient", "messages": CHAT}, [by_semaphore], id="grammars"),
        pytest.param("/completions", {"model": "obedient", "prompt": "hello"}, [], id="completions"),
        pytest.param("/audio/speech", {"input": "hello", "language": "en"}, [by_semaphore], id="phonemes"),
        pytest.param("/audio/transcriptions", None, [by_semaphore], id="transcription"),
        pytest.param("/decisions", BODIES["/decisions"], [by_semaphore, by_batcher], id="similarity"),
        pytest.param("/embeddings", BODIES["/embeddings"], [by_semaphore, by_batcher], id="embeddings"),
        pytest.param("/rerank", BODIES["/rerank"], [by_semaphore, by_batcher], id="rerank"),
    ],
)
async def test_fifty_keys_of_an_organisation_have_one_turn(
    api: Api, monkeypatch: pytest.MonkeyPatch, path: str, request_: dict[str, Any] | None, engines: list[Serve]
) -> None:
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
    assert len(calls) == KEYS + 1
    assert jobs == calls
    for serve in [by_gate, *engines]:
        order = await serve(calls)
        assert sorted(order) == list(range(KEYS + 1))
        assert order.index(KEYS) <= 2, f"{order.index(KEYS)} requests of the other organisation came before"
