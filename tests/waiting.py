"""Waiting for what nothing announces (a counter, another thread, another process), and a clock that tests set."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any

WITHIN_S = 120
"""How long it may take on a machine that is busy with other things."""


class ManualClock:
    """A clock that stands until a test moves `now_s`. It also takes the place of the module `time`."""

    def __init__(self, now_s: float = 1_800_000_000) -> None:
        self.now_s = float(now_s)

    def __call__(self) -> float:
        return self.now_s

    time = monotonic = __call__


async def until(condition: Callable[[], Any], within_s: float = WITHIN_S) -> None:
    """Waits until `condition`, or what it returns to be awaited, is true. TimeoutError if it is not `within_s`."""
    async with asyncio.timeout(within_s):
        while not (await result if inspect.isawaitable(result := condition()) else result):  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def settled() -> None:
    """Lets every task of the loop continue that can."""
    for _ in range(10):
        await asyncio.sleep(0)


def eventually(
    condition: Callable[[], Any], within_s: float = WITHIN_S, why: str | Callable[[], str] = "it never came"
) -> Any:
    """Waits where no event loop runs until `condition` is true, and returns its value. Fails with `why` otherwise."""
    end_s = time.monotonic() + within_s
    while not (result := condition()):
        assert time.monotonic() < end_s, why if isinstance(why, str) else why()
        time.sleep(0.01)
    return result
