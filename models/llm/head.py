"""A head in float32 that is made once. vLLM on a CPU makes it again in every step, from the weights in bfloat16.

For the embedded model that is 57 MB read and 113 MB written a step: half the time of a short decision. The copy costs
those 113 MB for as long as the engine lives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module
    from vllm.v1.engine.async_llm import AsyncLLM


def keep(engine: AsyncLLM) -> None:
    """Keeps the heads of `engine`, if its core runs in this process on a CPU and computes them in float32."""
    from vllm.platforms import current_platform

    from models.llm.core import ThreadedCore

    core = engine.engine_core
    if isinstance(core, ThreadedCore) and current_platform.is_cpu():
        core.call(lambda: core.collective_rpc("apply_model", None, (_keep,)))


def _keep(model: Module) -> None:
    import torch
    from vllm.model_executor.layers.logits_processor import LogitsProcessor

    for part in model.modules():
        if isinstance(part, LogitsProcessor) and part.head_dtype == torch.float32:
            part._apply_head = _Kept(part._apply_head)


class _Kept:
    """Stands in for `LogitsProcessor._apply_head`."""

    def __init__(self, casting: Any) -> None:
        self._casting = casting
        self._of: Tensor | None = None
        self._weight: Tensor | None = None

    def __call__(self, lm_head: Any, hidden_states: Tensor, embedding_bias: Tensor | None) -> Tensor:
        """Logits in float32 (rows, vocabulary)."""
        from torch.nn.functional import linear

        weight = getattr(lm_head, "weight", None)
        if weight is None or embedding_bias is not None:
            return self._casting(lm_head, hidden_states, embedding_bias)
        if self._of is not weight:
            self._of, self._weight = weight, weight.detach().float()
        assert self._weight is not None
        return linear(hidden_states.float(), self._weight)
