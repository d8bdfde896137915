"""Tasks that outlive the requests which start them, and retries of what the database refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from concurrency.background import Step, attempted

T = TypeVar("T")

RETRY_S = 0.5
MAX_RETRY_S = 4.0
"""Pauses before an attempt, at first and at most: less than the time in which a ledger closes."""


Spawn = Callable[[Coroutine[Any, Any, None]], object]
"""Function that starts work which outlives its request."""


def started(work: Coroutine[Any, Any, T], tasks: set[asyncio.Task[Any]]) -> asyncio.Task[T]:
    """Starts `work`, which is one of `tasks` until it ends. It runs to its end even if its waiter is cancelled."""
    task = asyncio.create_task(work)
    tasks.add(task)
    task.add_done_callback(partial(_forget, tasks))
    return task


def _forget(tasks: set[asyncio.Task[Any]], task: asyncio.Task[Any]) -> None:
    tasks.discard(task)
    if not task.cancelled():
        task.exception()  # Retrieved here, for the waiter may be gone.


async def persist(name: str, step: Step, spawn: Spawn) -> None:
    """Takes `step`, and where it fails repeats it in the background."""
    if not await attempted(name, step):
        spawn(retried(name, step))


async def retried(name: str, step: Step) -> None:
    """Repeats `step` until it succeeds, the first time after RETRY_S."""
    pause_s = RETRY_S
    await asyncio.sleep(pause_s)
    while not await attempted(name, step):
        pause_s = min(2 * pause_s, MAX_RETRY_S)
        await asyncio.sleep(pause_s)
