"""Streams of events: joined on their way, filled where they are silent, and no task or timer for each event."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.types import Message

from contract.chat.engine import ChatBatch
from contract.errors import UPSTREAM_ERROR, ApiError
from contract.messages.reply import MessageEvents
from contract.responses.reply import ResponseEvents, ResponseHead
from contract.responses.request import ResponsesRequest
from contract.wires import KEEP_ALIVE
from deployments.ingress.context import Exchange, Service
from deployments.ingress.wire.events import ChunkEncoder, PassThrough, event_stream
from deployments.ingress.wire.replies import StreamedReply, byte_stream
from deployments.replicas import MOST_JOINED, joined
from tests.api.asgi import exchange, http_scope
from tests.scripted import MODEL, Call, Script
from tests.waiting import cancelled, run, until

SCRIPT = Script(
    "some thoughts", "an answer of some words", (Call("call_1", "look", '{"where": "here"}'),), "tool_calls"
)
HEAD = ResponseHead(ResponsesRequest(model=MODEL, input="x"), "resp_1", 1, MODEL)
ENCODERS: dict[str, Callable[[], ChunkEncoder]] = {
    "chat": PassThrough,
    "messages": lambda: MessageEvents(MODEL),
    "responses": lambda: ResponseEvents(HEAD),
}
EXCHANGE = Exchange(cast(Service, None))
TURNS = st.lists(st.integers(0, 3), max_size=100)
"""For how many turns of the loop nothing comes, or nothing is taken."""


async def source(batches: Sequence[Any], turns: Sequence[int]) -> AsyncGenerator[Any, None]:
    """The batches in their time; an exception among them is raised."""
    for index, batch in enumerate(batches):
        for _ in range(turns[index] if index < len(turns) else 0):
            await asyncio.sleep(0)
        if isinstance(batch, Exception):
            raise batch
        yield batch


async def sent(batches: Sequence[Any], given_turns: Sequence[int], taken_turns: Sequence[int]) -> list[Any]:
    """The messages of a replica to which a client comes back after so many turns; what it raised is the last one."""
    messages: list[Any] = []
    try:
        async for message in joined(source(batches, given_turns)):
            messages.append(message)
            for _ in range(taken_turns[len(messages)] if len(messages) < len(taken_turns) else 0):
                await asyncio.sleep(0)
    except ApiError as error:
        messages.append(error)
    return messages


def read(batches: Sequence[ChatBatch], encoder: ChunkEncoder) -> bytes:
    """All that the client of a wire gets."""
    return b"".join([*map(encoder.of, batches), *encoder.end()])


@pytest.mark.parametrize("wire", ENCODERS)
@settings(max_examples=60)
@given(st.integers(1, 3), TURNS, TURNS)
def test_every_client_gets_the_same_bytes_whatever_was_joined(
    wire: str, per_batch: int, given_turns: list[int], taken_turns: list[int]
) -> None:
    batches = list(SCRIPT.batches(per_batch=per_batch))
    messages = asyncio.run(sent(batches, given_turns, taken_turns))
    assert read(messages, ENCODERS[wire]()) == read(batches, ENCODERS[wire]())
    assert messages[0] == batches[0], "the first event waits for no other"


@settings(max_examples=60)
@given(st.integers(0, 200), TURNS, TURNS, st.booleans())
def test_counts_are_those_of_the_last_event_and_an_error_comes_after_all_events(
    length: int, given_turns: list[int], taken_turns: list[int], fails: bool
) -> None:
    batches = [ChatBatch(b"%d " % number, 7, number, number // 2, 1) for number in range(length)]
    error = UPSTREAM_ERROR()
    messages = asyncio.run(sent([*batches, error] if fails else batches, given_turns, taken_turns))
    if fails:
        assert messages.pop() is error
    assert b"".join(message.events for message in messages) == b"".join(batch.events for batch in batches)
    for message in messages:
        numbers = message.events.split()
        assert len(numbers) <= MOST_JOINED
        assert message[1:] == batches[int(numbers[-1])][1:]


async def test_an_engine_waits_for_a_client_that_takes_nothing() -> None:
    made = 0

    async def endless() -> AsyncGenerator[ChatBatch, None]:
        nonlocal made
        while True:
            made += 1
            yield ChatBatch(b"x", 7, made)
            await asyncio.sleep(0)

    messages = joined(endless())
    await anext(messages)
    for _ in range(3 * MOST_JOINED):
        await asyncio.sleep(0)
    assert made == MOST_JOINED + 1
    assert (await anext(messages)).completion_tokens == MOST_JOINED + 1
    await messages.aclose()


@pytest.mark.parametrize("is_waiting", [False, True])
async def test_leaving_ends_the_engines_work(is_waiting: bool) -> None:
    has_ended = asyncio.Event()

    async def engine() -> AsyncGenerator[ChatBatch, None]:
        try:
            for number in range(1000):
                yield ChatBatch(b"x", 7, number)
                await asyncio.sleep(3600 if is_waiting else 0)
        finally:
            has_ended.set()

    messages = joined(engine())
    await anext(messages)
    await asyncio.sleep(0)
    await messages.aclose()
    assert has_ended.is_set()


class Client:
    """A connection: what came over it. It takes nothing while `reads` is not set."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.reads = asyncio.Event()
        self.reads.set()

    async def __call__(self, message: Message) -> None:
        await self.reads.wait()
        self.messages.append(message)

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.messages)

    def get(self, reply: StreamedReply) -> asyncio.Task[None]:
        return asyncio.create_task(exchange(reply, http_scope("GET", "/", []), b"", self))

    async def until(self, text: bytes) -> None:
        await until(lambda: text in self.body)


class Engine:
    """Gives what a test puts into `items`: bytes, an exception, None at the end."""

    def __init__(self, *items: Any) -> None:
        self.items: asyncio.Queue[Any] = asyncio.Queue()
        self.is_closed = False
        for item in items:
            self.items.put_nowait(item)

    async def events(self) -> AsyncGenerator[bytes, None]:
        try:
            while (item := await self.items.get()) is not None:
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            self.is_closed = True


def test_each_15_s_of_silence_are_filled_before_between_and_after_events() -> None:
    async def events() -> AsyncGenerator[bytes, None]:
        for silent_s, item in ((15.5, b"first"), (14.5, b"second"), (31, b"third"), (15.5, b"")):
            await asyncio.sleep(silent_s)
            yield item

    async def play() -> Client:
        client = Client()
        await client.get(await event_stream(EXCHANGE, events()))
        return client

    client = run(play())
    assert client.body == KEEP_ALIVE + b"firstsecond" + 2 * KEEP_ALIVE + b"third" + KEEP_ALIVE
    assert [message.get("more_body") for message in client.messages][-2:] == [True, False]


async def test_nothing_is_filled_in_while_events_come_or_wait_for_their_client() -> None:
    engine, client = Engine(b"first"), Client()
    getting = client.get(await event_stream(EXCHANGE, engine.events(), keepalive_s=0.05))
    await client.until(b"first")
    client.reads.clear()
    engine.items.put_nowait(b"second")
    await asyncio.sleep(0.2)  # several times as long as it may be silent
    client.reads.set()
    await client.until(b"second")
    engine.items.put_nowait(None)
    await getting
    assert client.body == b"firstsecond"


@pytest.mark.parametrize("makes", ["events", "bytes"])
@pytest.mark.parametrize("reads", [True, False])
async def test_engine_is_free_when_its_client_leaves(makes: str, reads: bool) -> None:
    engine, client = Engine(b"first", b"second"), Client()
    stream = engine.events()
    reply = await (event_stream(EXCHANGE, stream) if makes == "events" else byte_stream(stream, "audio/wav", {}))
    if not reads:
        client.reads.clear()
    getting = client.get(reply)
    await (client.until(b"second") if reads else asyncio.sleep(0))
    await cancelled(getting)
    assert getting.cancelled()
    assert engine.is_closed


@pytest.mark.parametrize("items", [(b"first",), (b"first", b"second")], ids=["no comment", "no event"])
async def test_engine_is_free_when_its_client_takes_no_more(items: Sequence[bytes]) -> None:
    engine, client = Engine(*items), Client()

    async def takes_one(message: Message) -> None:
        if message.get("body") in (KEEP_ALIVE, b"second"):
            raise TimeoutError
        await client(message)

    reply = await event_stream(EXCHANGE, engine.events(), keepalive_s=0.01)
    with pytest.raises(TimeoutError):
        await exchange(reply, http_scope("GET", "/", []), b"", takes_one)
    assert client.body == b"first", "no event tells a client what it did not read"
    assert engine.is_closed


async def test_failure_of_our_own_is_told_and_breaks_the_reply_off() -> None:
    engine, client = Engine(b"first", ValueError("a secret")), Client()
    with pytest.raises(ValueError, match="a secret"):
        await client.get(await event_stream(EXCHANGE, engine.events()))
    assert b"internal_error" in client.body
    assert b"a secret" not in client.body
    assert all(message.get("more_body", True) for message in client.messages)


async def test_leaving_before_anything_was_made_frees_the_engine() -> None:
    engine = Engine()
    beginning = asyncio.create_task(event_stream(EXCHANGE, engine.events()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await cancelled(beginning)
    assert engine.is_closed
