"""Replies: streams of bytes, server-sent events, chats on any wire; and the headers that say which model answered.

    byte_stream(source, media_type, headers)     bytes as an engine makes them
    event_stream(trace, source, headers)         events; silence is filled with comments, a failure stays inside
    chat_stream(context, batches, encoder)       the events of a chat

The first item of a source decides the status.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol

from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from contract.chat.engine import ChatBatch
from contract.errors import INTERNAL_ERROR, ApiError
from contract.limits import KEEPALIVE_S
from contract.wires import DONE, KEEP_ALIVE, event
from deployments.ingress.context import RequestContext, Trace

NO_CACHE = {"cache-control": "no-cache"}

MOST_PLACES = 64
"""In a header: proxies refuse long ones."""


class StreamedReply(StreamingResponse):
    """A reply over a source that has been started already, and that is closed whatever happens.

    A generator that is never iterated would never run its `finally`, and the engine would work on for nobody.
    """

    body_iterator: AsyncGenerator[bytes, None]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Streams, and closes the source."""
        async with aclosing(self.body_iterator):
            await super().__call__(scope, receive, send)


class EventReply(StreamedReply):
    """A reply of events, with one in place of silence.

    A task takes and sends what the source gives, and the request's own looks for silence: it has one timer, however
    many events there are.
    """

    def __init__(
        self, body: AsyncGenerator[bytes, None], headers: Mapping[str, str], keep_alive: bytes, keepalive_s: float
    ) -> None:
        super().__init__(body, headers=headers, media_type="text/event-stream")
        self._keep_alive, self._keepalive_s = keep_alive, keepalive_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        loop, turn = asyncio.get_running_loop(), asyncio.Lock()
        sent_s = loop.time()

        async def send_in_turn(message: Message) -> None:
            nonlocal sent_s
            async with turn:
                await send(message)
            sent_s = loop.time()

        async with aclosing(self.body_iterator):
            sending = loop.create_task(self.stream_response(send_in_turn))
            tasks = {sending, leaving := loop.create_task(self.listen_for_disconnect(receive))}
            try:
                while not (sending.done() or leaving.done()):
                    silent_s = 0.0 if turn.locked() else loop.time() - sent_s
                    if silent_s >= self._keepalive_s:
                        await send_in_turn({"type": "http.response.body", "body": self._keep_alive, "more_body": True})
                        silent_s = 0.0
                    await asyncio.wait(tasks, timeout=self._keepalive_s - silent_s, return_when=asyncio.FIRST_COMPLETED)
                (sending if sending.done() else leaving).result()
            finally:
                sending.cancel()
                leaving.cancel()
                await asyncio.wait(tasks)


async def byte_stream(
    source: AsyncGenerator[bytes, None], media_type: str, headers: Mapping[str, str]
) -> StreamedReply:
    """A reply over `source`, once it has its first item: what is raised until then is an ordinary error reply."""
    first = await anext(source)
    body = _after(first, source)
    # Started, so that closing it runs its `finally`; the empty item costs nothing on the wire.
    await anext(body)
    return StreamedReply(body, headers=headers, media_type=media_type)


async def _after(first: bytes, source: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    try:
        yield b""
        yield first
        async for item in source:
            yield item
    finally:
        await source.aclose()


@dataclass(frozen=True, slots=True)
class StreamFormat:
    """What a wire sends beside its own events.

    Attributes:
        keep_alive: an event or a comment that fills silence.
        failed: the event of an error that comes once the stream has begun.
    """

    keep_alive: bytes = KEEP_ALIVE
    failed: Callable[[ApiError], bytes] = lambda error: event(error.body())


PLAIN = StreamFormat()


async def event_stream(
    trace: Trace,
    source: AsyncGenerator[bytes, None],
    headers: Mapping[str, str] = NO_CACHE,
    keepalive_s: float = KEEPALIVE_S,
    stream_format: StreamFormat = PLAIN,
) -> StreamedReply:
    """A response over `source`, once it has its first item: an error until then is an ordinary error reply.

    A source that is silent for `keepalive_s` (an engine that loads) is answered 200 with comments meanwhile; an error
    that comes later is an `error` event, and the stream ends without `[DONE]`. `headers` are read when the status is
    decided, so that `source` can fill them until its first item.
    """
    first = asyncio.ensure_future(anext(source))
    body = _body(trace, first, source, stream_format)
    # Started, so that closing it runs its `finally`; the empty item costs nothing on the wire.
    await anext(body)
    try:
        await asyncio.wait({first}, timeout=keepalive_s)
        if first.done():
            first.result()
    except StopAsyncIteration:
        pass
    except BaseException:
        await body.aclose()
        raise
    return EventReply(body, {**NO_CACHE, **headers}, stream_format.keep_alive, keepalive_s)


async def _body(
    trace: Trace, first: asyncio.Future[bytes], source: AsyncGenerator[bytes, None], stream_format: StreamFormat
) -> AsyncGenerator[bytes, None]:
    try:
        yield b""
        yield await first
        async for item in source:
            yield item
    except StopAsyncIteration:
        pass
    except Exception as error:
        fault = error if isinstance(error, ApiError) else INTERNAL_ERROR()
        trace.fault = fault.fault
        yield stream_format.failed(fault)
        if fault is not error:
            raise
    finally:
        first.cancel()  # a running generator cannot be closed
        await asyncio.wait({first})
        await source.aclose()


class ChunkEncoder(Protocol):
    """Batches of one chat as the events of a wire."""

    def of(self, batch: ChatBatch) -> bytes:
        """What `batch` adds; may be nothing."""
        ...

    def end(self) -> Iterable[bytes]:
        """The last events, once the stream of chat is over."""
        ...


class PassThrough:
    """Events of OpenAI's older wires, which engines make ready."""

    def of(self, batch: ChatBatch) -> bytes:
        return batch.events

    def end(self) -> Iterable[bytes]:
        return (DONE,)


async def chat_stream(
    context: RequestContext,
    batches: AsyncGenerator[ChatBatch, None],
    encoder: ChunkEncoder,
    stream_format: StreamFormat = PLAIN,
    left_out: Sequence[str] = (),
) -> StreamedReply:
    """A response of the events that `encoder` makes of `batches`. Headers name what was cut and what was `left_out`."""
    headers = chat_headers(context, 0, left_out)
    events = _events(context, batches, encoder, headers)
    return await event_stream(context.trace, events, headers, stream_format=stream_format)


async def _events(
    context: RequestContext, batches: AsyncGenerator[ChatBatch, None], encoder: ChunkEncoder, headers: dict[str, str]
) -> AsyncGenerator[bytes, None]:
    """What is sent; `headers` are complete when the first event is, which they are sent with."""
    async with aclosing(batches):
        async for batch in batches:
            headers |= chat_headers(context, batch.cut_tokens)
            # Silence must be seen as such: it is filled.
            if events := encoder.of(batch):
                yield events
    for events in encoder.end():
        yield events


def served_headers(context: RequestContext, ran: str, requested: str | None) -> dict[str, str]:
    """The runtime that ran, and `requested` where that is not literally it."""
    prefix = context.service.header_prefix
    headers = {f"{prefix}model-served": ran}
    if requested and requested != ran:
        headers[f"{prefix}model-requested"] = _header_safe(requested)
    return headers


def chat_headers(context: RequestContext, cut_tokens: int, left_out: Sequence[str] = ()) -> dict[str, str]:
    """Says what the model did not read: tokens cut from the top of an input that was too long, and parts of the body.

    `...` stands for more of these.
    """
    prefix, headers = context.service.header_prefix, {}
    if cut_tokens:
        headers[f"{prefix}input-cut"] = str(cut_tokens)
    if left_out:
        more = ["..."] if len(left_out) > MOST_PLACES else []
        headers[f"{prefix}ignored"] = ", ".join([*left_out[:MOST_PLACES], *more])
    return headers


def _header_safe(text: str) -> str:
    """A client's text as a header value: one line of ASCII, not endless."""
    return "".join(char if " " <= char <= "~" else "?" for char in text)[:200]
