"""Bodies as they come and replies as they go: bounded in length, in time, and in what is held of all of them.

read_body(request, hold, most_bytes)    a body in memory
stream_body(request, hold, most_bytes)  the same in pieces, as they come
with_stall_limit(source, ...)           pieces of any body, as long as they keep coming
watched(receive, look, every_s)         where a body comes from, as long as it is wanted
with_timeout(seconds, step)             one step of either, within a time
BodyPace                                the steps of a body, within the time that all of them may take
ReplyPace                               the same of a reply; its client sets the pace

Setting and cancelling a timer costs more than most steps: what a network takes or has brought is there at once. So a
step is begun first, and gets a timer only when it has to wait.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import aclosing, suppress
from types import coroutine
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.types import Message, Receive

from contract.body import Hold
from contract.errors import INVALID_REQUEST, REQUEST_TOO_LARGE, UPLOAD_STALLED
from contract.limits import BODY_GRACE_S, BODY_IDLE_S, BODY_LEAST_BYTES_PER_S, BODY_S

R = TypeVar("R")


async def read_body(request: Request, hold: Hold, most_bytes: int) -> bytes:
    """The body of `request`, which comes in one message mostly. Raises as `stream_body`."""
    pace, chunks, is_whole = BodyPace(BODY_IDLE_S, BODY_S), [], False
    while not is_whole:
        chunk, is_whole = _piece(await pace.step(request.receive()))
        pace.length += len(chunk)
        _refuse_longer(pace.length, most_bytes)
        hold(len(chunk))
        chunks.append(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


async def stream_body(request: Request, hold: Hold, most_bytes: int, hint: str = "") -> AsyncGenerator[bytes, None]:
    """The body of `request` in pieces, each counted by `hold` as it comes.

    Raises REQUEST_TOO_LARGE as soon as it is longer than `most_bytes`, UPLOAD_STALLED, and what `hold` raises.
    """
    length = 0
    async with aclosing(with_stall_limit(pieces(request), BODY_IDLE_S, BODY_S)) as chunks:
        async for chunk in chunks:
            length += len(chunk)
            _refuse_longer(length, most_bytes, hint)
            hold(len(chunk))
            yield chunk


async def pieces(request: Request) -> AsyncGenerator[bytes, None]:
    """Yields the body from the network. Raises INVALID_REQUEST if it ends before its time."""
    is_whole = False
    while not is_whole:
        chunk, is_whole = _piece(await request.receive())
        if chunk:
            yield chunk


def _piece(message: Message) -> tuple[bytes, bool]:
    """Returns the bytes of a message, and if it is the last one."""
    if message["type"] == "http.disconnect":
        raise INVALID_REQUEST("the connection ended before the body was complete; send it again")
    return message.get("body", b""), not message.get("more_body", False)


def _refuse_longer(length: int, most_bytes: int, hint: str = "") -> None:
    if length > most_bytes:
        raise REQUEST_TOO_LARGE(f"the body is longer than {most_bytes} bytes{hint}")


def watched(receive: Receive, look: Callable[[], Awaitable[None]], every_s: float) -> Receive:
    """`receive`, which raises what `look` does: that is awaited every `every_s` seconds, also while nothing comes."""
    loop = asyncio.get_running_loop()
    due_s = loop.time() + every_s

    async def receive_and_look() -> Message:
        nonlocal due_s
        while True:
            message = None
            with suppress(StepTimeout):
                message = await with_timeout(due_s - loop.time(), receive())
            if loop.time() >= due_s:
                await look()
                due_s = loop.time() + every_s
            if message is not None:
                return message

    return receive_and_look


async def with_stall_limit(
    source: AsyncGenerator[bytes, None], idle_s: float, most_s: float
) -> AsyncGenerator[bytes, None]:
    """Yields from `source`. Raises as `BodyPace.step`."""
    pace = BodyPace(idle_s, most_s)
    async with aclosing(source):
        while True:
            try:
                chunk = await pace.step(source.__anext__())
            except StopAsyncIteration:
                return
            pace.length += len(chunk)
            yield chunk


class BodyPace:
    """Least pace of a body.

    Args:
        idle_s: seconds that may pass without a byte.
        most_s: seconds that all of it may take.

    Attributes:
        length: bytes that have come.
    """

    __slots__ = ("_began_s", "_idle_s", "_loop", "_most_s", "length")

    def __init__(self, idle_s: float, most_s: float) -> None:
        self._idle_s, self._most_s = idle_s, most_s
        self._loop = asyncio.get_running_loop()
        self._began_s = self._loop.time()
        self.length = 0

    async def step(self, step: Awaitable[R]) -> R:
        """Awaits `step`, which brings the next piece. Raises UPLOAD_STALLED where it or the body takes too long."""
        # A byte now and then is no body on its way: so much must have come by now, or it ends.
        slow_s = BODY_GRACE_S + self.length / BODY_LEAST_BYTES_PER_S
        left_s = self._began_s + min(self._most_s, slow_s) - self._loop.time()
        try:
            return await with_timeout(min(self._idle_s, left_s), step)
        except StepTimeout:
            raise UPLOAD_STALLED(
                f"the body arrived too slowly: at most {self._idle_s:g} s may pass without a byte, "
                f"{max(0.0, self._most_s):.0f} s in all, and at least {BODY_LEAST_BYTES_PER_S} bytes must arrive "
                "per second; send it again"
            ) from None


class StepTimeout(Exception):
    """A step took too long. It has been ended."""


async def with_timeout(seconds: float, step: Awaitable[R]) -> R:
    """Returns or raises as `step` does. Raises StepTimeout if it takes longer than `seconds`."""
    steps = step.__await__()
    try:
        awaited = steps.send(None)
    except StopIteration as done:
        result: R = done.value
        return result
    return await _rest_within(seconds, steps, awaited)


async def _rest_within(seconds: float, steps: Generator[Any, Any, R], awaited: Any) -> R:
    try:
        async with asyncio.timeout(seconds) as bound:
            return await _resumed(steps, awaited)
    except TimeoutError:
        if bound.expired():
            raise StepTimeout from None
        raise


@coroutine
def _resumed(steps: Generator[Any, Any, R], awaited: Any) -> Generator[Any, Any, R]:
    """The rest of `steps`, which wait for `awaited` already."""
    while True:
        try:
            try:
                brought = yield awaited
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as error:
                awaited = steps.throw(error)
            else:
                awaited = steps.send(brought)
        except StopIteration as done:
            result: R = done.value
            return result


class ReplyPace:
    """Least pace at which a client takes a reply: its waiting time in all is compared with what was sent.

    Args:
        idle_s: seconds for which it may take nothing, at once and beyond its pace.
        bytes_per_s: pace that it must have on average.
        clock: in seconds.
    """

    __slots__ = ("_bytes_per_s", "_clock", "_idle_s", "_left_s")

    def __init__(self, idle_s: float, bytes_per_s: float, clock: Callable[[], float] = time.perf_counter) -> None:
        self._idle_s = idle_s
        self._bytes_per_s = bytes_per_s
        self._clock = clock
        self._left_s = idle_s

    async def step(self, size_bytes: int, step: Awaitable[None]) -> None:
        """Awaits `step`, which sends `size_bytes`. Raises StepTimeout where the client keeps it waiting too long."""
        self._left_s += size_bytes / self._bytes_per_s
        steps = step.__await__()
        try:
            awaited = steps.send(None)
        except StopIteration:
            return
        began_s = self._clock()
        await _rest_within(min(self._idle_s, self._left_s), steps, awaited)
        self._left_s -= self._clock() - began_s
