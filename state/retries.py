"""Retries of what the database refused, which outlive their requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from concurrency.background import Step, attempted

RETRY_S = 0.5
MAX_RETRY_S = 4.0
"""Pauses before an attempt, at first and at most: less than the time in which a ledger closes."""


Spawn = Callable[[Coroutine[Any, Any, None]], object]
"""Function that starts work which outlives its request."""


async def retried(name: str, step: Step, at_once: bool = False) -> None:
    """Repeats `step` until it succeeds, the first time `at_once` or after RETRY_S."""
    pause_s = 0.0 if at_once else RETRY_S
    await asyncio.sleep(pause_s)
    while not await attempted(name, step):
        pause_s = min(max(RETRY_S, 2 * pause_s), MAX_RETRY_S)
        await asyncio.sleep(pause_s)
