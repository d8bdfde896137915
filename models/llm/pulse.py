"""How long an engine core has been silent while requests waited. Without vLLM: any core that gives outputs will do."""

from __future__ import annotations

import time
from typing import Any, Protocol

STALL_S = 60.0
"""Requests wait, but nothing has come from the engine for this long: it hangs. Honest steps take seconds."""


class Core(Protocol):
    """What is needed of vLLM's client of an engine core."""

    async def get_output_async(self) -> Any: ...


class Pulse:
    """How long a core has been silent while there was work. Looked at more often than `STALL_S`, as Serve does.

    Attributes:
        moved_at_s: `time.monotonic()` of the last output, or of the last look at an idle core.
    """

    def __init__(self, core: Core) -> None:
        self.moved_at_s = time.monotonic()
        self._next_output = core.get_output_async
        core.get_output_async = self._noted  # type: ignore[method-assign]

    def check(self, has_work: bool) -> None:
        """Raises RuntimeError where there is work and the core has been silent for `STALL_S`."""
        if not has_work:
            self.moved_at_s = time.monotonic()
        elif time.monotonic() - self.moved_at_s > STALL_S:
            raise RuntimeError(f"requests wait, but the engine has returned nothing for {STALL_S:.0f} s")

    async def _noted(self) -> Any:
        outputs = await self._next_output()
        self.moved_at_s = time.monotonic()
        return outputs
