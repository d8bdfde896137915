"""Notices operations that never end, for the health checks of engines: one that hangs is restarted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


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
        """`operation` has ended, if it was under way."""
        self.started_s.pop(operation, None)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watches the block as one operation."""
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
