"""Work of a request in the event loop, and the number of files that it enters."""

import asyncio
import gc
import json
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from autoscaling.observation import Observation
from autoscaling.tracing import Tracer
from contract import ids
from tests.api.asgi import Answer, ask
from tests.api.conftest import Api, app_over
from tests.api.walks import Calls, walks

OPERATIONS = ("create_task", "call_at", "create_future", "run_in_executor", "call_soon_threadsafe")
"""Methods of the loop: tasks, timers, waits, and ways to other threads and back."""

WHOLE_ANSWER = Counter(call_at=1, create_task=1, create_future=3, call_soon_threadsafe=1)
"""The deadline of the call; a bill that is settled whoever leaves, and the one way to the database and back for it."""


@pytest.fixture
async def work(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Number of times each operation was called since this was cleared."""
    loop, calls = asyncio.get_running_loop(), Counter[str]()

    def counted(name: str, real: Callable[..., Any], *args: Any, **options: Any) -> Any:
        calls[name] += 1
        return real(*args, **options)

    for name in OPERATIONS:
        monkeypatch.setattr(loop, name, partial(counted, name, getattr(loop, name)))
    return calls


async def chats(api: Api, content: str = "say hello", *, stream: bool = False) -> AsyncIterator[Answer]:
    """Replies to one chat again and again, without the objects of an HTTP client."""
    app, headers = app_over(api.service), [(b"authorization", f"Bearer {api.everything}".encode())]
    request = {"model": "obedient", "stream": stream, "messages": [{"role": "user", "content": content}]}
    while True:
        answer = await ask(app, "POST", "/v1/chat/completions", headers, json.dumps(request).encode())
        assert answer.status == 200
        yield answer


@pytest.mark.parametrize("way", ["without a limit", "with room for its money", "traced"])
async def test_a_whole_answer_waits_for_its_bill_only(api: Api, work: Counter[str], way: str) -> None:
    """From the socket to the replica and back, for a key that is known."""
    await api.limit(10**12 if way == "with room for its money" else None)
    with closing(Tracer(InMemorySpanExporter(), "ingress", lambda count: None)) as tracer:
        replies = chats(api.changed(observation=Observation(tracer, has_access_log=True)) if way == "traced" else api)
        for _ in range(3):
            work.clear()
            answer = await anext(replies)
    assert ("traceparent" in answer.headers) == (way == "traced")
    assert work <= WHOLE_ANSWER, work


CALLS_OF_AN_EVENT, CALLS_OF_AN_ANSWER = 36, 300
"""Functions of ours that run for one event of a stream, and for one whole answer: in ingress, replica and ledger."""


async def test_an_event_and_an_answer_run_few_functions(api: Api) -> None:
    """What is told of a request and of its tokens is told once, at its end."""
    calls = Calls("autoscaling", "concurrency", "contract", "deployments", "state")

    async def counted(content: str, *, stream: bool) -> Counter[str]:
        replies = chats(api, content, stream=stream)
        for _ in range(3):
            ids._stock.clear()  # what one request in hundreds finds, depending on the tests before
            with calls:
                await anext(replies)
        return Counter(calls)

    few, many = await counted("stream 10 0", stream=True), await counted("stream 510 0", stream=True)
    more = Counter({name: round((many[name] - few[name]) / 500) for name in many})
    assert more.total() <= CALLS_OF_AN_EVENT, more.most_common()
    whole = await counted("say hello", stream=False)
    assert whole.total() <= CALLS_OF_AN_ANSWER, whole.most_common()


@pytest.mark.parametrize(("content", "stream"), [("say hello", False), ("stream 20 0", True)])
async def test_a_request_leaves_nothing_to_the_garbage_collector(api: Api, content: str, stream: bool) -> None:
    """The ingress has it look seldom, which is cheap only as long as no request makes cycles."""
    replies = chats(api, content, stream=stream)
    for _ in range(3):
        await anext(replies)
    gc.collect()
    gc.disable()
    try:
        left = []
        for _ in range(3):  # in the first of these rounds something that an earlier test has left may go
            for _ in range(20):
                await anext(replies)
            left.append(gc.collect())
        assert min(left) < 20
    finally:
        gc.enable()


async def test_no_event_makes_a_task_or_a_timer(api: Api, work: Counter[str]) -> None:
    """From the replica through gate, flow and reply; what a whole stream makes does not grow with its length."""

    async def calls_of(events: int) -> Counter[str]:
        work.clear()
        assert (await api.chat(f"stream {events} 0", stream=True)).text.count("data: {") == events
        return Counter({name: work[name] for name in ("create_task", "call_at")})

    await calls_of(1)
    few, many = await calls_of(10), await calls_of(510)
    assert few["create_task"] < 25
    assert (many - few).total() < 10, f"500 more events make {many - few}"


MOST = {"chat stream": 30, "speech": 31, "transcription": 52, "voice design": 47, "decision": 32, "MCP chat": 33}
"""Files of each walk, the writing of the bill in the database's thread included."""


async def test_each_walk_is_as_short_as_it_was(tmp_path: Path, migrated: Path) -> None:
    shutil.copy(migrated, tmp_path)
    taken = {name: len(files) for name, files in (await walks(tmp_path)).items()}
    assert taken.keys() == MOST.keys()
    assert all(taken[name] <= MOST[name] for name in MOST), f"{taken} for {MOST}; `python -m tests.api.walks` prints it"
