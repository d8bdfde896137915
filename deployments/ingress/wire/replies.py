"""Server-sent events: the first item decides the status, silence is filled with comments, a failure stays inside."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass

from contract.errors import INTERNAL_ERROR, ApiError
from contract.events import KEEP_ALIVE, event
from contract.limits import KEEPALIVE_S
from deployments.ingress.wire.streams import Stream

NO_CACHE = {"cache-control": "no-cache"}


def _failed(error: ApiError) -> bytes:
    return event(error.body())


@dataclass(frozen=True, slots=True)
class Manners:
    """What a wire sends beside its own events.

    Attributes:
        keep_alive: an event or a comment that fills silence.
        failed: the event of an error that comes once the stream has begun.
    """

    keep_alive: bytes = KEEP_ALIVE
    failed: Callable[[ApiError], bytes] = _failed


PLAIN = Manners()


async def event_stream(
    source: AsyncGenerator[bytes, None],
    headers: Mapping[str, str] = NO_CACHE,
    keepalive_s: float = KEEPALIVE_S,
    manners: Manners = PLAIN,
) -> Stream:
    """A response over `source`, once it has its first item: an error until then is an ordinary error reply.

    A source that is silent for `keepalive_s` (an engine that loads) is answered 200 with comments meanwhile; an error
    that comes later is an `error` event, and the stream ends without `[DONE]`. `headers` are read when the status is
    decided, so that `source` can fill them until its first item.
    """
    first = asyncio.ensure_future(anext(source))
    try:
        await asyncio.wait({first}, timeout=keepalive_s)
        if first.done():
            first.result()
    except StopAsyncIteration:
        pass
    except BaseException:
        await _stop(first, source)
        raise
    body = _body(first, source, keepalive_s, manners)
    # Started, so that closing it runs its `finally`; the empty item costs nothing on the wire.
    await anext(body)
    return Stream(body, "text/event-stream", {**NO_CACHE, **headers})


async def _body(
    pending: asyncio.Future[bytes], source: AsyncGenerator[bytes, None], keepalive_s: float, manners: Manners
) -> AsyncGenerator[bytes, None]:
    try:
        yield b""
        while True:
            await asyncio.wait({pending}, timeout=keepalive_s)
            if not pending.done():
                yield manners.keep_alive
                continue
            try:
                item = pending.result()
            except StopAsyncIteration:
                return
            pending = asyncio.ensure_future(anext(source))
            yield item
    except ApiError as error:
        yield manners.failed(error)
    except Exception:
        yield manners.failed(INTERNAL_ERROR())
        raise
    finally:
        await _stop(pending, source)


async def _stop(pending: asyncio.Future[bytes], source: AsyncGenerator[bytes, None]) -> None:
    """Cancels the item under way, then closes the source. A running generator cannot be closed."""
    pending.cancel()
    await asyncio.wait({pending})
    await source.aclose()
