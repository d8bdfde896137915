"""What vLLM does on a CPU, in less time and memory.

Two things took a quarter of the start of a small model (benchmarks/speed/results/cold_start.md): filling a cache with
zeros that the kernel gives for nothing, and looking for kernels in modules that cannot have any. A third, a head in
float32, took half the time of a short decision.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.functional import linear
from torch.overrides import TorchFunctionMode
from vllm.renderers import hf
from vllm.triton_utils import dispatcher
from vllm.v1.engine.async_llm import AsyncLLM

LARGE_BYTES = 1 << 24
"""Zeros of fewer bytes are allocated as torch does it."""


@contextmanager
def replaced(module: ModuleType, name: str, replacement: Any) -> Iterator[None]:
    """`replacement` stands in `module` under `name` while the block runs.

    vLLM offers no argument for what is replaced here. Nothing else may load an engine in this process at the same time.
    """
    original = getattr(module, name)
    setattr(module, name, replacement)
    try:
        yield
    finally:
        setattr(module, name, original)


@contextmanager
def quick_tokenizers() -> Iterator[None]:
    """While a renderer is made, one copy of the tokenizer less is created.

    Replaces `hf.maybe_make_thread_pool`. The last copy is created on demand, when two threads need one.
    """
    make_pool = hf.maybe_make_thread_pool
    with replaced(hf, "maybe_make_thread_pool", lambda tokenizer, copies: make_pool(tokenizer, copies - 1)):
        yield


@contextmanager
def quick_core() -> Iterator[None]:
    """While an engine core is made in this thread, kernels are looked for in vLLM's own modules only.

    Replaces `dispatcher._rebind_kernels`, and inside it `dispatcher.sys`: without Triton, kernels in C++ take the place
    of vLLM's stand-ins, which only vLLM's own modules refer to.
    """
    rebind_everywhere = dispatcher._rebind_kernels

    def rebind(overrides: list[Any]) -> None:
        modules = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "vllm"}
        with replaced(dispatcher, "sys", SimpleNamespace(modules=modules)):
            rebind_everywhere(overrides)

    with replaced(dispatcher, "_rebind_kernels", rebind), _UntouchedZeros():
        yield


class _UntouchedZeros(TorchFunctionMode):
    """Large tensors of zeros in main memory become pages that take no memory until they are written to."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.zeros and set(kwargs) <= {"dtype", "device"} and len(args) == 1 and isinstance(args[0], int):
            device = torch.device(kwargs.get("device") or torch.get_default_device())
            if device.type == "cpu" and kwargs.get("dtype") is torch.int8 and args[0] >= LARGE_BYTES:
                return torch.frombuffer(mmap.mmap(-1, args[0]), dtype=torch.int8)
        return func(*args, **kwargs)


def cache_heads(engine: AsyncLLM) -> None:
    """Caches the heads of `engine`, if its core runs in this process on a CPU and computes them in float32.

    vLLM makes a head in float32 again in every step, from the weights in bfloat16. For the embedded model that is 57 MB
    read and 113 MB written a step: half the time of a short decision. The copy takes 113 MB.
    """
    from vllm.platforms import current_platform

    from models.llm.vllm_internals.core import ThreadedCore

    core = engine.engine_core
    if isinstance(core, ThreadedCore) and current_platform.is_cpu():
        core.call(lambda: core.collective_rpc("apply_model", None, (_cache_heads_of,)))


def _cache_heads_of(model: Module) -> None:
    from vllm.model_executor.layers.logits_processor import LogitsProcessor

    for part in model.modules():
        if isinstance(part, LogitsProcessor) and part.head_dtype == torch.float32:
            part._apply_head = CachedHead(part._apply_head)


class CachedHead:
    """Takes the place of `LogitsProcessor._apply_head`, which serves heads that are no plain product with a weight."""

    def __init__(self, original: Any) -> None:
        self._original = original
        self._source: Tensor | None = None
        self._weight: Tensor | None = None

    def __call__(self, lm_head: Any, hidden_states: Tensor, embedding_bias: Tensor | None) -> Tensor:
        """Logits in float32 (rows, vocabulary)."""
        weight = getattr(lm_head, "weight", None)
        if weight is None or embedding_bias is not None:
            return self._original(lm_head, hidden_states, embedding_bias)
        if self._source is not weight:
            self._source, self._weight = weight, weight.detach().float()
        assert self._weight is not None
        return linear(hidden_states.float(), self._weight)
