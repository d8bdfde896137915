"""Replies of bytes as an engine makes them, and the headers that say which model answered and what it did not read."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from deployments.ingress.context import RequestContext

MOST_PLACES = 64
"""In a header: proxies refuse long ones."""


class StreamedReply(StreamingResponse):
    """A reply over a source that has been started already, and that is closed whatever happens.

    A generator that is never iterated would never run its `finally`, and the engine would work for no client.
    """

    body_iterator: AsyncGenerator[bytes, None]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Streams, and closes the source."""
        async with aclosing(self.body_iterator):
            await super().__call__(scope, receive, send)


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


def served_headers(context: RequestContext, ran: str, requested: str | None) -> dict[str, str]:
    """The runtime that ran, and `requested` where that is not literally it."""
    prefix = context.service.header_prefix
    headers = {f"{prefix}model-served": ran}
    if requested and requested != ran:
        # A client's text as a header value: one line of ASCII, not endless.
        headers[f"{prefix}model-requested"] = "".join(c if " " <= c <= "~" else "?" for c in requested)[:200]
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
