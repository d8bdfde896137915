"""Work that a process does beside its requests: once, or for as long as it runs."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from typing import Any, TypeVar

T = TypeVar("T")
log = logging.getLogger(f"parlance.{__name__}")
Step = Callable[[], Awaitable[object]]

PAUSE_S, MAX_PAUSE_S = 1.0, 60.0
"""Between an error and the next attempt, at first and at most. It doubles with each error in a row."""

BACKGROUND_TASKS: set[asyncio.Task[Any]] = set()
"""Tasks of `in_background`. A loop alone keeps no task alive."""


def in_background(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Starts work that continues when the client of the present request has gone."""
    # A context of its own: Serve cancels the calls that were made in the context of a request when its client goes.
    task = asyncio.get_running_loop().create_task(work, context=Context())
    BACKGROUND_TASKS.add(task)
    task.add_done_callback(BACKGROUND_TASKS.discard)
    return task


def start_task(work: Coroutine[Any, Any, T], tasks: set[asyncio.Task[Any]]) -> asyncio.Task[T]:
    """Starts work in a task that `tasks` holds until it ends. The loop reports no error for which no caller waits."""
    tasks.add(task := asyncio.create_task(work))
    task.add_done_callback(tasks.discard)
    task.add_done_callback(lambda task: task.cancelled() or task.exception())  # marked as retrieved
    return task


async def to_its_end(work: Awaitable[T]) -> T:
    """The result of `work`, which may not be interrupted: a caller that is cancelled, even twice, waits for its end."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        raise


async def attempted(name: str, step: Step) -> bool:
    """Returns whether `step` succeeds. Logs an error with its frames.

    Its text is left out: it may quote a client.
    """
    try:
        await step()
    except Exception as error:
        log.error("could not %s: %s\n%s", name, type(error).__name__, "".join(traceback.format_tb(error.__traceback__)))
        return False
    return True


def supervised(name: str, *steps: Step, every_s: float | None = None, at_once: bool = False) -> asyncio.Task[None]:
    """Starts `supervise`. Cancel the task to end it."""
    # A context of its own, as above. The caller keeps the task alive.
    work = supervise(name, *steps, every_s=every_s, at_once=at_once)
    return asyncio.get_running_loop().create_task(work, name=name, context=Context())


async def supervise(name: str, *steps: Step, every_s: float | None = None, at_once: bool = False) -> None:
    """Runs `steps` every `every_s` seconds, the first time `at_once` or after that; without `every_s` only once.

    An error is logged, ends no other step, and has them all run again after a pause.
    """
    loop, pause_s = asyncio.get_running_loop(), 0.0
    most_s = MAX_PAUSE_S if every_s is None else max(PAUSE_S, min(MAX_PAUSE_S, every_s))
    await asyncio.sleep(0 if at_once or every_s is None else every_s)
    while True:
        began_s = loop.time()
        if all([await attempted(name, step) for step in steps]):
            pause_s = 0.0
            if every_s is None:
                return
        else:
            has_lasted = loop.time() - began_s > MAX_PAUSE_S  # a loop of its own, which had gone well until then
            pause_s = PAUSE_S if has_lasted or not pause_s else min(2 * pause_s, most_s)
        await asyncio.sleep(pause_s or every_s or 0)
