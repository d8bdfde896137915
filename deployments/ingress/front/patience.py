"""A bound in time that costs nothing where nothing has to be waited for.

Setting and cancelling a timer costs more than most steps of a reply: what a network takes or has brought is there at
once. So a step is begun first, and gets a timer when it has to wait.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator
from types import coroutine
from typing import Any, TypeVar

R = TypeVar("R")


class Overdue(Exception):
    """A step took too long. It has been ended."""


async def within(seconds: float, step: Awaitable[R]) -> R:
    """What `step` gives, and what it raises. Raises Overdue where it takes longer than `seconds`."""
    steps = step.__await__()
    try:
        awaited = steps.send(None)
    except StopIteration as done:
        result: R = done.value
        return result
    try:
        async with asyncio.timeout(seconds) as bound:
            return await _resumed(steps, awaited)
    except TimeoutError:
        if bound.expired():
            raise Overdue from None
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


class Pace:
    """How slowly a client may take a reply: what it has waited for altogether is held against what was sent.

    Args:
        idle_s: that it may take nothing, at once and beyond its pace.
        bytes_per_s: that it takes on average.
        clock: in seconds.
    """

    __slots__ = ("_bytes_per_s", "_clock", "_idle_s", "_left_s")

    def __init__(self, idle_s: float, bytes_per_s: float, clock: Callable[[], float] = time.perf_counter) -> None:
        self._idle_s = idle_s
        self._bytes_per_s = bytes_per_s
        self._clock = clock
        self._left_s = idle_s

    async def kept(self, size_bytes: int, step: Awaitable[R]) -> R:
        """What `step` gives, which sends so many bytes. Raises Overdue where the client keeps it waiting too long."""
        self._left_s += size_bytes / self._bytes_per_s
        began_s = self._clock()
        result = await within(min(self._idle_s, self._left_s), step)
        self._left_s -= self._clock() - began_s
        return result
