"""A bound in time that costs nothing where nothing has to be waited for.

Setting and cancelling a timer costs more than most steps of a reply: what a network takes or has brought is there at
once. So a step is begun first, and gets a timer when it has to wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator
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
