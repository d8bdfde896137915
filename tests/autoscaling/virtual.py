"""An event loop whose clock jumps to the next timer instead of waiting for it: seconds cost nothing and are exact."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

R = TypeVar("R")


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs whatever needs no network."""

    def __init__(self) -> None:
        super().__init__(_Impatient(self))
        self.now_s = 0.0

    def time(self) -> float:
        """Seconds since the loop was made, as its timers have it."""
        return self.now_s


class _Impatient(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._loop.now_s += timeout or 0.0
        return super().select(0)


def run(work: Coroutine[Any, Any, R]) -> R:
    """What `work` gives, in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
