"""vLLM with its engine core in processes of its own, and a health check that notices when they hang.

vLLM's own check knows only whether the processes live. One that hangs returns nothing while requests wait, so the time
since its last output is watched. They would also outlive a replica that is killed, and keep the memory of its GPU.
"""

from __future__ import annotations

from typing import Any

import psutil
from vllm.v1.engine.async_llm import AsyncLLM

from concurrency.child import Guard
from concurrency.stalls import StallDetector

SILENCE_S = 60.0
"""Seconds without an output, while requests wait, after which the engine counts as stalled. Steps take seconds."""


class OutputWatch:
    """Notices that a core gives no output while there is work. Serve's health check looks more often than SILENCE_S.

    `core` is vLLM's client of an engine core: its `get_output_async` is watched.
    """

    def __init__(self, core: Any) -> None:
        self.silences = StallDetector(SILENCE_S, SILENCE_S)
        self._next_output = core.get_output_async
        core.get_output_async = self._observed

    def check(self, has_work: bool) -> None:
        """Raises RuntimeError where there is work and the core has been silent for too long."""
        if has_work:
            self.silences.begin(self)
        else:
            self.silences.end(self, finished=False)
        self.silences.check(f"requests wait, but the engine has returned nothing for {self.silences.limit_s:.0f} s")

    async def _observed(self) -> Any:
        outputs = await self._next_output()
        self.silences.end(self)
        return outputs


def statistics() -> list[Any]:
    """Receiver of vLLM's statistics: Ray's metrics, as `ray_vllm_...`. Without Ray they are dropped."""
    from vllm.v1.metrics.ray_wrappers import RayPrometheusStatLogger

    return [RayPrometheusStatLogger]


class ProcessLLM(AsyncLLM):
    """`AsyncLLM`. Its health check raises if the process of its engine core hangs. No process outlives this one."""

    _guard: Guard | None = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.watch = OutputWatch(self.engine_core)
        self.stalls = self.watch.silences
        self._guard = Guard(child.pid for child in psutil.Process().children(recursive=True))

    def shutdown(self, *arguments: Any, **options: Any) -> None:
        """Works as vLLM's, which ends its processes itself."""
        super().shutdown(*arguments, **options)
        if self._guard:
            self._guard.release()

    async def check_health(self) -> None:
        """Works as vLLM's; raises also where requests wait, but no output came for SILENCE_S."""
        await super().check_health()
        # The process may owe an answer of another kind: the first request asks for one before it counts.
        owes_answer = bool(getattr(self.engine_core, "utility_results", None))
        self.watch.check(self.output_processor.has_unfinished_requests() or owes_answer)
