"""Bodies as they come: bounded in length, in time, and in what is held of all of them.

whole(request, holder, most_bytes)      a body in memory
taken(request, holder, most_bytes)      the same in pieces, as they come
holding(request, holder)                takes more of what the holder may have in memory
in_turn(request, holder, length, read)  what is made of a body, one long body after the other
impatient(source, ...)                  pieces of any body, as long as they keep coming
watched(receive, look, every_s)         where a body comes from, as long as somebody wants it
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import TypeVar

from starlette.requests import Request
from starlette.types import Message, Receive

from contract.body import Hold
from contract.errors import INVALID_REQUEST, REQUEST_TOO_LARGE, UPLOAD_STALLED
from contract.limits import BODY_GRACE_S, BODY_IDLE_S, BODY_LEAST_BYTES_PER_S, BODY_S, LONG_BODY_BYTES
from deployments.ingress.front.concurrency import Holder, owner_of
from deployments.ingress.front.middleware import trace_of
from deployments.ingress.front.patience import Overdue, within

R = TypeVar("R")


async def whole(request: Request, holder: Holder, most_bytes: int) -> bytes:
    """The body of `request`. Raises as `taken`."""
    body = bytearray()
    async with aclosing(taken(request, holder, most_bytes)) as chunks:
        async for chunk in chunks:
            body += chunk
    return bytes(body)


async def taken(request: Request, holder: Holder, most_bytes: int, hint: str = "") -> AsyncGenerator[bytes, None]:
    """The body of `request` in pieces, counted as they come and held by `holder` until the request is over.

    Raises REQUEST_TOO_LARGE as soon as it is longer than `most_bytes`, UPLOAD_STALLED, TOO_MUCH_AT_ONCE, OVERLOADED.
    """
    take = holding(request, holder)
    length = 0
    async with aclosing(impatient(pieces(request), BODY_IDLE_S, BODY_S)) as chunks:
        async for chunk in chunks:
            length += len(chunk)
            if length > most_bytes:
                raise REQUEST_TOO_LARGE(f"the body is longer than {most_bytes} bytes{hint}")
            take(len(chunk))
            yield chunk


def holding(request: Request, holder: Holder) -> Hold:
    """Takes bytes of the budgets of `holder` until `request` is over. Raises TOO_MUCH_AT_ONCE, OVERLOADED."""
    trace = trace_of(request)
    return trace.held.enter_context(trace.service.budgets.body(holder))


async def in_turn(request: Request, holder: Holder, length: int, read: Callable[[], R]) -> R:
    """What `read` makes of a body of this length, which `holder` has sent.

    Reading a long one takes milliseconds. Many that came together would be read one right after the other, and
    everybody else would wait for all of them. So others take a step between two, and organisations take turns.
    """
    if length <= LONG_BODY_BYTES:
        return read()
    async with trace_of(request).service.budgets.reading.of(owner_of(holder)):
        # The others run now, up to their own next step.
        await asyncio.sleep(0)
        return read()


async def pieces(request: Request) -> AsyncGenerator[bytes, None]:
    """What the network brings. Raises INVALID_REQUEST where it ends before its time."""
    is_whole = False
    while not is_whole:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise INVALID_REQUEST("the connection ended before the body was whole; send it again")
        is_whole = not message.get("more_body", False)
        if chunk := message.get("body"):
            yield chunk


def watched(receive: Receive, look: Callable[[], Awaitable[None]], every_s: float) -> Receive:
    """`receive`, which raises what `look` does: that is awaited every `every_s` seconds, also while nothing comes."""
    loop = asyncio.get_running_loop()
    due_s = loop.time() + every_s

    async def receive_and_look() -> Message:
        nonlocal due_s
        while True:
            message = None
            with suppress(Overdue):
                message = await within(due_s - loop.time(), receive())
            if loop.time() >= due_s:
                await look()
                due_s = loop.time() + every_s
            if message is not None:
                return message

    return receive_and_look


async def impatient(source: AsyncGenerator[bytes, None], idle_s: float, most_s: float) -> AsyncGenerator[bytes, None]:
    """What `source` gives.

    Raises UPLOAD_STALLED where that is nothing for `idle_s`, not all within `most_s`, or less in a second than a body
    must bring.
    """
    loop = asyncio.get_running_loop()
    began_s, length = loop.time(), 0
    async with aclosing(source):
        while True:
            # A byte now and then is no body on its way: so much must have come by now, or it ends.
            slow_s = BODY_GRACE_S + length / BODY_LEAST_BYTES_PER_S
            left_s = began_s + min(most_s, slow_s) - loop.time()
            try:
                chunk = await within(min(idle_s, left_s), source.__anext__())
            except StopAsyncIteration:
                return
            except Overdue:
                raise UPLOAD_STALLED(
                    f"the body did not come in time: at most {idle_s:g} s may pass without a byte, "
                    f"{max(0.0, most_s):.0f} s in all, and {BODY_LEAST_BYTES_PER_S} bytes must come in a second; "
                    "send it again"
                ) from None
            length += len(chunk)
            yield chunk
