"""Engines that block, advanced step by step in threads, so that an event loop stays free and a caller can leave.

    stepper = Stepper(threads=4, deadline_s=300, name="whisper")
    async for part in stepper.run(parts): ...       `parts` is a generator that blocks

Leaving the iteration closes the generator after the step in progress. Where no step ends for much longer than they took
before, the health check of the engine fails, and it is replaced.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Event
from typing import Any, TypeVar

from concurrency.stalls import StallDetector
from models.batching import TokenBatcher

GRACE_S = 60.0
"""Seconds that a step may take beyond the deadline, whatever others do."""

LEAST_S = 90.0
"""Seconds that a step may take however short others were: a provider may be silent for a minute within one."""

T = TypeVar("T")


class Stepper:
    """Threads of one engine. `deadline_s` is that of a whole call, so no step may take longer."""

    def __init__(self, threads: int, deadline_s: float, name: str) -> None:
        self._name = name
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self.stalls = StallDetector(LEAST_S, deadline_s + GRACE_S, deadline_s + GRACE_S)

    async def run(self, parts: Generator[T]) -> AsyncGenerator[T, None]:
        """The items of `parts`, each step of it in a thread. Their clean-up must not block: it may run in the loop."""
        end, has_left = object(), Event()

        def advance() -> T | object:
            with self.stalls.watching():
                part = next(parts, end)
            if has_left.is_set():
                parts.close()
            return part

        try:
            while (part := await asyncio.get_running_loop().run_in_executor(self._threads, advance)) is not end:
                yield part  # type: ignore[misc]  # `end` is the only other object
        finally:
            has_left.set()
            with suppress(ValueError):  # a step is under way, and closes them at its end: no thread waits for that
                parts.close()

    def check(self) -> None:
        self.stalls.check(f"engine {self._name} makes no progress")

    def close(self) -> None:
        """Waits for nothing; steps that have not begun are not made."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class ThreadedAdapter:
    """An adapter of an engine that blocks, so that threads of its own do the work."""

    _workers: Stepper | TokenBatcher[Any, Any]

    @property
    def active_s(self) -> float:
        """`time.monotonic()` of the last step or call; now while one is under way."""
        return self._workers.stalls.active_s

    async def check_health(self) -> None:
        """Raises Stalled when a step or call is under way for longer than it may be."""
        self._workers.check()

    def close(self) -> None:
        self._workers.close()
