"""Replies of server-sent events: silence is filled, a failure stays inside, and a wait is reported.

    event_stream(exchange, source, headers)      events of any kind
    chat_stream(context, batches, encoder)       the events of a chat
    enable_queue_status(admitted)                before either: `queue_status` events, if the request wants them

The first item of a source decides the status.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from starlette.types import Message, Receive, Scope, Send

from autoscaling.waits import NEWS_S, Wait, WaitWatch
from contract.chat.engine import ChatBatch
from contract.errors import INTERNAL_ERROR, ApiError
from contract.limits import KEEPALIVE_S, STATUS_EVERY_S, STATUS_SILENCE_S
from contract.messages.reply import MessageEvents
from contract.responses.reply import ResponseEvents
from contract.wires import DONE, KEEP_ALIVE, QUEUE_STATUS, QueueStatus, event, named_event
from deployments.ingress.context import Exchange, RequestContext
from deployments.ingress.front.admission import Admitted
from deployments.ingress.wire.replies import StreamedReply, chat_headers

NO_CACHE = {"cache-control": "no-cache"}


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


@dataclass(frozen=True, slots=True)
class StreamFormat:
    """Events that a wire sends beside its own.

    Attributes:
        keep_alive: an event or a comment that fills silence.
        failed: the event of an error that comes once the stream has begun.
        queued: the event that reports a wait.
    """

    keep_alive: bytes = KEEP_ALIVE
    failed: Callable[[ApiError], bytes] = lambda error: event(error.body())
    queued: Callable[[QueueStatus], bytes] = lambda status: named_event(QUEUE_STATUS, {"type": QUEUE_STATUS, **status})


PLAIN = StreamFormat()
CHUNKS = StreamFormat(queued=lambda status: named_event(QUEUE_STATUS, {**status, "choices": []}))
"""OpenAI's older wires: their clients take every event for a chunk, and one of no choices for a chunk of usage."""


async def event_stream(
    exchange: Exchange,
    source: AsyncGenerator[bytes, None],
    headers: Mapping[str, str] = NO_CACHE,
    keepalive_s: float = KEEPALIVE_S,
    stream_format: StreamFormat = PLAIN,
) -> StreamedReply:
    """A response over `source`, once it has its first item: an error until then is an ordinary error reply.

    A source that is silent for `keepalive_s` (an engine that loads), or that reports its wait, is answered 200 with
    comments or reports meanwhile. An error that comes later is an event, and the stream ends without `[DONE]`.
    `headers` are read when the status is decided, so that `source` can fill them until its first item.
    """
    first, watch = asyncio.ensure_future(anext(source)), exchange.timings.watch
    body = _body(exchange, first, source, stream_format)
    # Started, so that closing it runs its `finally`; the empty item costs nothing on the wire.
    await anext(body)
    try:
        news: set[asyncio.Future[Any]] = {first, watch.begun} if watch else {first}
        await asyncio.wait(news, timeout=keepalive_s, return_when=asyncio.FIRST_COMPLETED)
        if first.done():
            first.result()
    except StopAsyncIteration:
        pass
    except BaseException:
        await body.aclose()
        raise
    return EventReply(body, {**NO_CACHE, **headers}, stream_format.keep_alive, keepalive_s)


async def _body(
    exchange: Exchange, first: asyncio.Future[bytes], source: AsyncGenerator[bytes, None], stream_format: StreamFormat
) -> AsyncGenerator[bytes, None]:
    try:
        yield b""
        watch = exchange.timings.watch
        if not first.done() and not (watch and watch.begun.done()):
            yield stream_format.keep_alive  # as long as between two of them, nothing has been sent
        if watch:
            async for status in _statuses(watch, first):
                yield stream_format.queued(status)
        yield await first
        async for item in source:
            yield item
    except StopAsyncIteration:
        pass
    except Exception as error:
        refusal = error if isinstance(error, ApiError) else INTERNAL_ERROR()
        exchange.fault = refusal.fault
        yield stream_format.failed(refusal)
        if refusal is not error:
            raise
    finally:
        first.cancel()  # a running generator cannot be closed
        await asyncio.wait({first})
        await source.aclose()


def enable_queue_status(admitted: Admitted) -> None:
    """Lets the stream that answers report its wait, if the request wants that. Call it before any engine is."""
    context = admitted.context
    if admitted.request.headers.get(f"{context.service.header_prefix}progress") == "1":
        context.timings.watch = WaitWatch(context.owner)


async def _statuses(watch: WaitWatch, first: asyncio.Future[bytes]) -> AsyncIterator[QueueStatus]:
    """Yields reports of a wait until `first` is there: as it begins, as it changes, and before silence is long."""
    clock, last_s = asyncio.get_running_loop().time, 0.0
    await asyncio.wait((first, watch.begun), return_when=asyncio.FIRST_COMPLETED)
    last: Wait | None = None
    while not first.done():
        wait, now_s = watch.look(), clock()
        silent_s = now_s - last_s
        if wait and (last is None or silent_s >= STATUS_SILENCE_S or last.after(silent_s).differs(wait)):
            last, last_s = wait, now_s
            yield queue_status(wait)
        await asyncio.wait({first}, timeout=STATUS_EVERY_S if last else NEWS_S)
    if not first.cancelled() and first.exception() is None:
        watch.answered()


def queue_status(wait: Wait) -> QueueStatus:
    """`wait`, as clients get it."""
    eta_ms, p90_ms = (None if s is None else round(1000 * s) for s in (wait.eta_s, wait.p90_s))
    return {"position": wait.position, "of": wait.of, "eta_ms": eta_ms, "eta_p90_ms": p90_ms, "why": wait.why}


class PassThrough:
    """Events of OpenAI's older wires, which engines make ready."""

    def of(self, batch: ChatBatch) -> bytes:
        """Events of `batch`; empty if it has nothing new."""
        return batch.events

    def end(self) -> Iterable[bytes]:
        """The last events, once the stream of chat is over."""
        return (DONE,)


ChunkEncoder = PassThrough | ResponseEvents | MessageEvents
"""Makes the events of a wire of the batches of one chat."""


async def chat_stream(
    context: RequestContext,
    batches: AsyncGenerator[ChatBatch, None],
    encoder: ChunkEncoder,
    stream_format: StreamFormat = CHUNKS,
    left_out: Sequence[str] = (),
) -> StreamedReply:
    """A response of the events that `encoder` makes of `batches`. Headers name what was cut and what was `left_out`."""
    headers = chat_headers(context, 0, left_out) if left_out else {}
    events = _events(context, batches, encoder, headers)
    return await event_stream(context.exchange, events, headers, stream_format=stream_format)


async def _events(
    context: RequestContext, batches: AsyncGenerator[ChatBatch, None], encoder: ChunkEncoder, headers: dict[str, str]
) -> AsyncGenerator[bytes, None]:
    """Yields what is sent; `headers` are complete when the first event is, which they are sent with.

    The end comes after `batches` is closed, which settles the bill (`flows.chat.streamed`).
    """
    async with aclosing(batches):
        async for batch in batches:
            if batch.cut_tokens:
                headers |= chat_headers(context, batch.cut_tokens)
            # Silence must be seen as such: it is filled.
            if events := encoder.of(batch):
                yield events
    for events in encoder.end():
        yield events
