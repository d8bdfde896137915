"""Heads in float32 on a CPU, with weights that are turned and laid out once.

Decisions want their logits in float32: in bfloat16 two labels often come out equal.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.functional import linear
from vllm.model_executor.layers.logits_processor import LogitsProcessor
from vllm.platforms import current_platform
from vllm.v1.engine.async_llm import AsyncLLM

from models.cpu import has_layouts
from models.llm.vllm_internals.core import ThreadedCore
from models.llm.vllm_internals.steps import Product


def cache_heads(engine: AsyncLLM) -> None:
    """Caches the heads of `engine`, if its core runs in this process on a CPU and computes them in float32.

    vLLM makes a head in float32 again in every step, from the weights in bfloat16. For the embedded model that is 57 MB
    read and 113 MB written a step: half the time of a short decision. The copy takes 113 MB.
    """
    core = engine.engine_core
    if isinstance(core, ThreadedCore) and current_platform.is_cpu():
        core.call(lambda: core.collective_rpc("apply_model", None, (_cache_heads_of,)))


def _cache_heads_of(model: Module) -> None:
    for part in model.modules():
        if isinstance(part, LogitsProcessor) and part.head_dtype == torch.float32:
            part._apply_head = CachedHead(part._apply_head)


class CachedHead:
    """Takes the place of `LogitsProcessor._apply_head`, which serves heads that are no plain product with a weight.

    And those with a weight in float32 already: vLLM has a layout for it.
    """

    def __init__(self, original: Any) -> None:
        self._original = original
        self._source: Tensor | None = None
        self._multiply: Product

    def __call__(self, lm_head: Any, hidden_states: Tensor, embedding_bias: Tensor | None) -> Tensor:
        """Logits in float32 (rows, vocabulary)."""
        weight = getattr(lm_head, "weight", None)
        if weight is None or weight.dtype == torch.float32 or embedding_bias is not None:
            return self._original(lm_head, hidden_states, embedding_bias)
        if self._source is not weight:
            self._source, self._multiply = weight, exact_product(weight.detach().float())
        return self._multiply(hidden_states.float())


def exact_product(weight: Tensor) -> Product:
    """The product with `weight` in float32. For 4 to 16 rows a layout for the processor makes it 3 times as quick."""
    if not has_layouts(weight.dtype):
        return partial(linear, weight=weight)
    laid_out = torch.ops.mkldnn._reorder_linear_weight(weight)
    return lambda x: torch.ops.mkldnn._linear_pointwise(x, laid_out, None, "none", [], "")
