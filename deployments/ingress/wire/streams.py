"""Replies whose bytes come from an engine as it makes them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send


class Stream(StreamingResponse):
    """A reply over a source that has been started already.

    The source is closed whatever happens, also if the client is gone before the first byte: a generator that is never
    iterated would never run its `finally`, and the engine would work on for nobody.
    """

    def __init__(self, body: AsyncGenerator[bytes, None], media_type: str, headers: Mapping[str, str]) -> None:
        super().__init__(body, media_type=media_type, headers=headers)
        self._body = body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Streams, and closes the source."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._body.aclose()


async def byte_stream(source: AsyncGenerator[bytes, None], media_type: str, headers: Mapping[str, str]) -> Stream:
    """A reply over `source`, once it has its first item: what is raised until then is an ordinary error reply."""
    first = await anext(source)
    body = _after(first, source)
    # Started, so that closing it runs its `finally`; the empty item costs nothing on the wire.
    await anext(body)
    return Stream(body, media_type, headers)


async def _after(first: bytes, source: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    try:
        yield b""
        yield first
        async for item in source:
            yield item
    finally:
        await source.aclose()
