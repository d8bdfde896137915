"""Engines that block, advanced step by step in threads, so that an event loop stays free and a caller can leave.

    stepper = Stepper(threads=4, deadline_s=300, name="whisper")
    async for part in stepper.run(parts): ...       `parts` is a generator that blocks

Whoever leaves the iteration closes the generator after the step that it is at.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Generator
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TypeVar

GRACE_S = 60.0
"""How much longer than its deadline a step may take before it counts as stuck."""

T = TypeVar("T")


class Stepper:
    """Threads of one engine. `deadline_s` is that of a whole call, so a step that takes longer is none."""

    def __init__(self, threads: int, deadline_s: float, name: str) -> None:
        self._name = name
        self._deadline_s = deadline_s
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._under_way: dict[Lock, float] = {}

    async def run(self, parts: Generator[T]) -> AsyncGenerator[T, None]:
        """What `parts` gives, each step of it in a thread."""
        turn = Lock()  # a generator that runs cannot be closed
        end = object()

        def advance() -> T | object:
            with turn:
                self._under_way[turn] = time.monotonic()
                try:
                    return next(parts, end)
                finally:
                    del self._under_way[turn]

        def stop() -> None:
            with turn:
                parts.close()

        loop = asyncio.get_running_loop()
        try:
            while (part := await loop.run_in_executor(self._threads, advance)) is not end:
                yield part  # type: ignore[misc]  # `end` is the only other object
        finally:
            self._threads.submit(stop)

    def check(self) -> None:
        """Raises RuntimeError when a step is under way for longer than the deadline and a minute more."""
        oldest = min(self._under_way.copy().values(), default=None)
        if oldest is not None and time.monotonic() - oldest > self._deadline_s + GRACE_S:
            raise RuntimeError(f"engine {self._name} makes no progress")

    def close(self) -> None:
        """Waits for nothing; steps that have not begun are not made."""
        self._threads.shutdown(wait=False, cancel_futures=True)
