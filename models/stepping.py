"""Engines that block, advanced step by step in threads, so that an event loop stays free and a caller can leave.

    stepper = Stepper(threads=4, deadline_s=300, name="whisper")
    async for part in stepper.run(parts): ...       `parts` is a generator that blocks

Leaving the iteration closes the generator after the step in progress. A step that never ends fails the health check of
its engine, which is then restarted; so does any other operation under a `StallDetector`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock
from typing import TypeVar

GRACE_S = 60.0
"""Seconds that a step may take beyond the deadline before it counts as stalled."""

T = TypeVar("T")


class StallDetector:
    """The operations that are under way, and how long each may take. Safe to use from any thread.

    Attributes:
        limit_s: seconds after which an operation counts as stalled.
        started_s: `time.monotonic()` of the start of each operation under way.
    """

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self.started_s: dict[object, float] = {}

    def begin(self, operation: object) -> None:
        """`operation` is under way. Where it was already, its start stays."""
        self.started_s.setdefault(operation, time.monotonic())

    def end(self, operation: object) -> None:
        self.started_s.pop(operation, None)

    @contextmanager
    def watching(self) -> Iterator[None]:
        operation = object()
        self.begin(operation)
        try:
            yield
        finally:
            self.end(operation)

    def check(self, message: str) -> None:
        """Raises RuntimeError with `message` if an operation has taken longer than `limit_s`."""
        oldest = min(self.started_s.copy().values(), default=None)
        if oldest is not None and time.monotonic() - oldest > self.limit_s:
            raise RuntimeError(message)


class Stepper:
    """Threads of one engine. `deadline_s` is that of a whole call, so a step that takes longer has stalled."""

    def __init__(self, threads: int, deadline_s: float, name: str) -> None:
        self._name = name
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self.stalls = StallDetector(deadline_s + GRACE_S)

    async def run(self, parts: Generator[T]) -> AsyncGenerator[T, None]:
        """The items of `parts`, each step of it in a thread."""
        lock = Lock()  # a generator that runs cannot be closed
        end = object()

        def advance() -> T | object:
            with lock, self.stalls.watching():
                return next(parts, end)

        def stop() -> None:
            with lock:
                parts.close()

        loop = asyncio.get_running_loop()
        try:
            while (part := await loop.run_in_executor(self._threads, advance)) is not end:
                yield part  # type: ignore[misc]  # `end` is the only other object
        finally:
            self._threads.submit(stop)

    def check(self) -> None:
        self.stalls.check(f"engine {self._name} makes no progress")

    def close(self) -> None:
        """Waits for nothing; steps that have not begun are not made."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class SteppedAdapter:
    """An adapter whose engine blocks, so that its calls are advanced by a stepper."""

    _stepper: Stepper

    async def check_health(self) -> None:
        """Raises RuntimeError when a step is under way for longer than the deadline and a minute more."""
        self._stepper.check()

    def close(self) -> None:
        self._stepper.close()
