"""What vLLM does on a CPU, in less time and memory.

Two things took a quarter of the start of a small model (benchmarks/speed/results/cold_start.md): filling a cache with
zeros that the kernel gives for nothing, and looking for kernels in modules that cannot have any. A third, a head in
float32, took half the time of a short decision. The others are operators that vLLM's build for CPUs has in C++ and does
not use: norms and SiLU, and the product of int8 weights that it leaves to processors with AMX.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.functional import linear
from torch.overrides import TorchFunctionMode
from vllm import ir
from vllm.config import VllmConfig
from vllm.config.kernel import IrOpPriorityConfig
from vllm.model_executor.kernels.linear.scaled_mm import cpu as scaled_mm
from vllm.model_executor.layers.activation import SiluAndMul
from vllm.platforms import current_platform
from vllm.renderers import hf
from vllm.triton_utils import dispatcher
from vllm.v1.engine.async_llm import AsyncLLM

LARGE_BYTES = 1 << 24
"""Zeros of fewer bytes are allocated as torch does it."""
PROVIDER = "parlance"
"""The name of our implementations among those of vLLM's operators."""
LANES = 32
"""The C++ operators work on whole registers: widths of 32 numbers fill those of every type."""


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


@contextmanager
def quick_steps(config: VllmConfig) -> Iterator[None]:
    """While a model is loaded, its parts take norms and SiLU in C++, and a kernel for int8 where there is VNNI.

    Replaces `SiluAndMul.forward_cpu`, and `scaled_mm.check_cpu_sgl_kernel`, which wants AMX for int8 although that
    kernel does without.
    """
    choose_norms(config.kernel_config.ir_op_priority)
    fits_amx = scaled_mm.check_cpu_sgl_kernel

    def fits(rows: int, columns: int, dtype: torch.dtype) -> bool:
        fits_vnni = dtype == torch.int8 and columns % 32 == 0 and rows % 16 == 0 and has_vnni()
        return fits_vnni or fits_amx(rows, columns, dtype)

    with replaced(scaled_mm, "check_cpu_sgl_kernel", fits), replaced(SiluAndMul, "forward_cpu", silu_and_mul):
        yield


def has_vnni() -> bool:
    """Whether the processor multiplies int8 in AVX-512, and the model being loaded computes in bfloat16 beside it."""
    return bool(torch.cpu.get_capabilities().get("avx512_vnni")) and torch.get_default_dtype() == torch.bfloat16


def silu_and_mul(part: SiluAndMul, x: Tensor) -> Tensor:
    """SiLU of the first half of `x` (..., 2 n) times the second: (..., n)."""
    width = x.shape[-1] // 2
    if width % LANES or not x.is_contiguous() or not hasattr(torch.ops._C, "silu_and_mul"):
        return part.forward_native(x)
    product = x.new_empty(*x.shape[:-1], width)
    torch.ops._C.silu_and_mul(product, x)
    return product


def choose_norms(priority: IrOpPriorityConfig) -> None:
    """Puts norms in C++ where `priority` has the default of CPUs; what they do not take stays with vLLM's own.

    vLLM has them and declares them for GPUs only.
    """
    for name in register_norms():
        if getattr(priority, name) == ["native"]:
            setattr(priority, name, [PROVIDER, "native"])


@cache
def register_norms() -> tuple[str, ...]:
    """The names of the operators that have a C++ implementation from here on; none where vLLM's build lacks it."""

    def takes(x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None) -> bool:
        alike = weight is not None and weight.dtype == x.dtype and x.shape[-1] % LANES == 0
        return alike and variance_size is None and x.is_contiguous()

    def takes_sum(
        x: Tensor, x_residual: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None
    ) -> bool:
        return takes(x, weight, epsilon, variance_size) and x_residual.is_contiguous()

    current_platform.import_ir_kernels()
    if not hasattr(torch.ops._C, "fused_add_rms_norm"):
        return ()
    ir.ops.rms_norm.register_impl(PROVIDER, supports_args=takes)(_norm)
    ir.ops.fused_add_rms_norm.register_impl(PROVIDER, supports_args=takes_sum, inplace=True)(_add_norm)
    return "rms_norm", "fused_add_rms_norm"


def _norm(x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None) -> Tensor:
    normed = torch.empty_like(x)
    torch.ops._C.rms_norm(normed, x, weight, epsilon)
    return normed


def _add_norm(
    x: Tensor, x_residual: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None
) -> tuple[Tensor, Tensor]:
    torch.ops._C.fused_add_rms_norm(x, x_residual, weight, epsilon)
    return x, x_residual


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
