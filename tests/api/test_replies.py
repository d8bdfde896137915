"""Replies: long ones sent in pieces, and the time limits of what a request waits for."""

import asyncio
import json
from contextlib import nullcontext
from itertools import product
from typing import Any

import pytest
from starlette.types import Message, Send

from contract.embeddings import MAX_FLOATS, Embeddings, EmbeddingsRequest, job_of, reply, reply_bytes
from contract.limits import REPLY_PIECE_BYTES
from deployments.ingress.front import concurrency as budgets_module
from deployments.ingress.front import middleware
from deployments.ingress.front.bodies import ReplyPace, StepTimeout, with_timeout
from tests.api.asgi import exchange, http_scope
from tests.api.conftest import Api, app_over, refused
from tests.api.engines import LocalEngine
from tests.waiting import ManualClock, cancelled, until

SIZE = 1024
"""Numbers of a vector here."""


@pytest.fixture
async def wide(api: Api) -> Api:
    """The same with vectors of SIZE numbers."""
    engine = api.engine("embeddings-lengths")
    models: Any = api.service.catalog.embeddings
    models["lengths"] = models["lengths"].model_copy(update={"dimensions": SIZE})
    engine.adapter.model = models["lengths"]
    return api


def inputs(count: int, encoding: str = "float") -> dict[str, Any]:
    return {"model": "lengths", "input": ["x"] * count, "encoding_format": encoding}


async def sent(api: Api, body: dict[str, Any], send: Send) -> None:
    """A reply to `body` over a connection that takes it as `send` does."""
    text = json.dumps(body).encode()
    headers = [(b"authorization", f"Bearer {api.everything}".encode()), (b"content-length", b"%d" % len(text))]
    await exchange(app_over(api.service), http_scope("POST", "/v1/embeddings", headers), text, send)


async def test_a_long_reply_is_sent_in_pieces_and_is_whole(wide: Api) -> None:
    pieces: list[Message] = []

    async def take(message: Message) -> None:
        pieces.append(message)

    await sent(wide, inputs(600), take)
    parts = [message["body"] for message in pieces[1:]]
    assert len(json.loads(b"".join(parts))["data"]) == 600
    assert dict(pieces[0]["headers"])[b"content-length"] == b"%d" % sum(map(len, parts))
    assert len(parts) > 5
    assert {len(part) for part in parts[:-1]} == {REPLY_PIECE_BYTES}
    assert [message["more_body"] for message in pieces[1:]] == [True] * (len(parts) - 1) + [False]


async def test_a_client_has_its_time_for_each_piece(wide: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "WRITE_S", 0.8)
    began_s, times = asyncio.get_running_loop().time(), []

    async def take_slowly(message: Message) -> None:
        if len(message.get("body", b"")) == REPLY_PIECE_BYTES:
            await asyncio.sleep(0.12)
        times.append(asyncio.get_running_loop().time() - began_s)

    await sent(wide, inputs(600), take_slowly)
    assert times[-1] > 0.8, "all of it took longer than one piece may"


async def test_a_reply_counts_until_it_is_sent(wide: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    reads, arrived = asyncio.Event(), asyncio.Event()

    async def take_the_first_piece(message: Message) -> None:
        if message.get("body"):
            arrived.set()
            await reads.wait()

    replying = asyncio.create_task(sent(wide, inputs(600), take_the_first_piece))
    await arrived.wait()
    held = wide.service.concurrency.body_bytes.total
    assert held > 600 * SIZE * 2, "the reply is among what is held"
    monkeypatch.setattr(budgets_module, "BODIES_OF_KEY_BYTES", held)
    assert (await wide.chat("say hello")).status_code == 429
    reads.set()
    await replying
    assert wide.service.concurrency.body_bytes.total == 0
    assert (await wide.chat("say hello")).status_code == 200


async def test_a_reply_that_nobody_reads_is_given_up_and_counts_no_more(
    wide: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(middleware, "WRITE_S", 0.05)

    async def take_nothing(message: Message) -> None:
        await asyncio.Event().wait()

    with pytest.raises(middleware.BrokenOff):
        await sent(wide, inputs(600), take_nothing)
    assert wide.service.concurrency.body_bytes.total == 0


async def test_numbers_as_text_are_bounded_and_base64_is_named(wide: Api) -> None:
    most = MAX_FLOATS // SIZE
    reply = await wide.send("POST", "/v1/embeddings", json=inputs(most + 1))
    says = f"{most + 1} vectors of 1024 numbers"
    assert "base64" in refused(reply, 400, "invalid_request_error", "encoding_format", says)["message"]
    assert await wide.usage() == []
    for count, encoding in ((most - 1, "float"), (most, "float"), (2048, "base64")):
        assert (await wide.send("POST", "/v1/embeddings", json=inputs(count, encoding))).status_code == 200


@pytest.mark.parametrize(
    ("bound", "status", "code"),
    [
        ("BODIES_OF_KEY_BYTES", 429, "rate_limit_exceeded"),
        ("BODIES_OF_ORGANISATION_BYTES", 429, "rate_limit_exceeded"),
        ("BODIES_OF_PROCESS_BYTES", 503, "overloaded"),
    ],
)
@pytest.mark.parametrize(
    ("path", "body", "engine"),
    [
        ("/v1/embeddings", inputs(100), "embeddings-lengths"),
        ("/v1/tokenize", {"model": "obedient", "prompt": "x" * 3000, "return_token_strs": True}, "chat-obedient"),
    ],
)
async def test_a_reply_that_has_no_room_is_refused_before_its_engine_is_asked(
    wide: Api, monkeypatch: pytest.MonkeyPatch, bound: str, status: int, code: str, path: str, body: Any, engine: str
) -> None:
    monkeypatch.setattr(budgets_module, bound, 40_000)
    reply = await wide.send("POST", path, json=body)
    refused(reply, status, code)
    assert 1 <= int(reply.headers["retry-after"]) <= 3
    local = wide.service.engines[engine]
    assert isinstance(local, LocalEngine)
    assert local.callers == []
    assert await wide.usage() == []
    monkeypatch.undo()
    assert (await wide.send("POST", path, json=body)).status_code == 200
    assert wide.service.concurrency.body_bytes.total == 0


@pytest.mark.parametrize("encoding", ["float", "base64"])
async def test_no_reply_is_longer_than_the_room_that_is_taken_for_it(wide: Api, encoding: str) -> None:
    model = wide.service.catalog.embeddings["lengths"]
    job = job_of(EmbeddingsRequest.model_validate(inputs(50)), model)
    longest = b"\xff\xff\x7f\x80" * (50 * SIZE)  # -1.1754942106924411e-38
    kind: Any = encoding
    made = b"".join(reply(Embeddings(longest, SIZE, 1), model="m", encoding_format=kind))
    assert 0.8 * len(made) < reply_bytes(job, model, kind) >= len(made) - 200


async def test_what_a_body_becomes_counts_while_its_engine_works(api: Api) -> None:
    parts = [{"type": "text", "text": "a"}] * 200
    body = {"model": "obedient", "messages": [{"role": "user", "content": parts}] * 10}
    body["messages"].append({"role": "user", "content": "hold 30"})  # type: ignore[attr-defined]
    asking = asyncio.create_task(api.send("POST", "/v1/chat/completions", json=body))
    length = len(json.dumps(body, separators=(",", ":")))
    await until(lambda: api.service.concurrency.body_bytes.total > length)
    assert 10 * 200 * 5 * 100 < api.service.concurrency.body_bytes.total - length < 10 * 200 * 5 * 150
    await cancelled(asking)


async def at_once() -> str:
    return "there"


async def later(event: asyncio.Event) -> str:
    await event.wait()
    await asyncio.sleep(0)
    return "come"


async def test_what_is_there_at_once_needs_no_time_and_what_comes_later_is_waited_for() -> None:
    assert await with_timeout(-1, at_once()) == "there"
    event = asyncio.Event()
    asyncio.get_running_loop().call_soon(event.set)
    assert await with_timeout(60, later(event)) == "come"


class Never:
    """A step that does not come; notes that it has begun, and that it was ended."""

    def __init__(self) -> None:
        self.began, self.ended = asyncio.Event(), asyncio.Event()

    async def __call__(self) -> None:
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()


async def test_what_does_not_come_is_ended() -> None:
    with pytest.raises(StepTimeout):
        await with_timeout(0, (never := Never())())
    assert never.ended.is_set()


async def test_cancelling_from_outside_is_no_lack_of_time() -> None:
    task = asyncio.create_task(with_timeout(60, (never := Never())()))
    await never.began.wait()
    assert await cancelled(task)
    assert never.ended.is_set()


async def test_errors_of_a_step_are_its_own() -> None:
    async def fails(error: type[Exception], waits: bool) -> None:
        if waits:
            await asyncio.sleep(0)
        raise error

    for error, waits in product((ValueError, TimeoutError, StopAsyncIteration), (False, True)):
        with pytest.raises(error):
            await with_timeout(60, fails(error, waits))


async def test_a_step_may_survive_what_it_catches() -> None:
    async def holds_on() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            return "to the end"
        return "never"

    assert await with_timeout(0, holds_on()) == "to the end"


async def test_all_waits_together_are_bounded_by_what_was_sent() -> None:
    async def take(seconds: float) -> None:
        await asyncio.sleep(0)
        clock.now_s += seconds

    for waited_s, is_dropped in ((70.0, False), (70.1, True)):
        clock, event = ManualClock(), asyncio.Event()
        asyncio.get_running_loop().call_soon(event.set)
        pace = ReplyPace(60, 10, clock)
        await pace.step(100, take(20))
        await take(1000)  # nothing was there to be sent
        await pace.step(0, take(waited_s - 20 - 1e-6))
        with pytest.raises(StepTimeout) if is_dropped else nullcontext():
            await pace.step(0 if is_dropped else 100, asyncio.Event().wait() if is_dropped else later(event))


async def test_nothing_may_be_waited_for_longer_than_the_idle_time_however_much_was_sent() -> None:
    pace = ReplyPace(0, 1)
    await pace.step(10**9, at_once())
    with pytest.raises(StepTimeout):
        await pace.step(0, asyncio.Event().wait())
