"""vLLM with its engine core in processes of its own, and a health check that notices when that hangs.

vLLM's own check knows only whether the process lives. A process that hangs gives nothing back while requests wait, so
what is looked at is the age of its last output.
"""

from __future__ import annotations

from typing import Any

from vllm.v1.engine.async_llm import AsyncLLM

from models.llm.pulse import Pulse


class WatchedLLM(AsyncLLM):
    """`AsyncLLM` whose health check raises when the process of its engine core hangs."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._pulse = Pulse(self.engine_core)

    async def check_health(self) -> None:
        """As vLLM's; raises also where requests wait, but nothing came for `pulse.STALL_S`."""
        await super().check_health()
        self._pulse.check(self.output_processor.has_unfinished_requests() or self._is_asked)

    @property
    def _is_asked(self) -> bool:
        """Whether the process owes vLLM an answer of another kind. The first request asks one before it counts."""
        return bool(getattr(self.engine_core, "utility_results", None))
