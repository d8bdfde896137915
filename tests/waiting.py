"""Waiting for what nothing announces: a counter, another thread, another process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

WITHIN_S = 60
"""How long it may take on a machine that is busy with other things."""


async def until(condition: Callable[[], object], within_s: float = WITHIN_S) -> None:
    """Waits until `condition` is true. TimeoutError if it is not `within_s`."""
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def until_in_thread(condition: Callable[[], object], within_s: float = WITHIN_S) -> None:
    """The same where no event loop runs."""
    end_s = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > end_s:
            raise TimeoutError
        time.sleep(0.001)
