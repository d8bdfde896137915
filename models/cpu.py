"""Choices by processor: formats and layout of a model's numbers, and what threads and freed memory take beside it.

A CPU without instructions for bfloat16 emulates it. On one with AVX2 only, vLLM took 5 times as long to read a prompt
in bfloat16 as in float32, and a third of the tokens a second came out of 8 streams.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import get_native_id
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch

BFLOAT16_FEATURES = ("avx512_bf16", "amx_bf16", "bf16", "arm_bf16")
"""Names that torch gives to instructions for bfloat16."""

NICENESS = 10
"""The niceness of threads that work beside the steps."""


def fitting_dtype(name: str, device: str) -> str:
    """The dtype `name`, or `float32` on a CPU that would only emulate it."""
    import torch

    if device != "cpu" or name not in ("bfloat16", "float16"):
        return name
    features = torch.cpu.get_capabilities()
    has_instructions = name == "bfloat16" and any(features.get(feature) for feature in BFLOAT16_FEATURES)
    return name if has_instructions else "float32"


class Int8Kernel(NamedTuple):
    """One way to multiply by weights in 8 bits, and the processors on which it was measured to be the quickest."""

    name: str
    features: tuple[str, ...]
    dtype: str


INT8_KERNELS = (
    # One thread, all products of one token of SmolLM2 135M: 12.5 ms beside 16.4 (FBGEMM) and 29.7 (bfloat16).
    Int8Kernel("sgl", ("avx512_vnni", "avx512_bf16"), "bfloat16"),
    # The same with AVX2 alone: 22 ms beside 26 (int8 weights alone), 34 (float16) and 71 (float32).
    Int8Kernel("fbgemm", ("avx2", "fma3"), "float32"),
)
"""In the order in which they are preferred; benchmarks/speed/results/chat.md has more of the figures.

`sgl` is vLLM's, `fbgemm` torch's. An engine computes in the `dtype` of its row.
"""


def int8_kernel(device: str, dtype: str) -> str | None:
    """The name of the kernel for weights in 8 bits beside activations in `dtype`; None where there is none to use."""
    import torch

    features = torch.cpu.get_capabilities()
    if device != "cpu" or "fbgemm" not in torch.backends.quantized.supported_engines:
        return None
    fits = (row for row in INT8_KERNELS if row.dtype == dtype and all(map(features.get, row.features)))
    return next((row.name for row in fits), None)


def has_layouts(dtype: torch.dtype) -> bool:
    """Says if torch multiplies by weights in `dtype` that were laid out once (`mkldnn::_linear_pointwise`).

    bfloat16 wants parts of AVX-512. Where that was not measured (not x86), it counts as not there.
    """
    import torch

    if platform.machine() not in ("x86_64", "AMD64") or not torch.backends.mkldnn.is_available():
        return False
    return dtype != torch.bfloat16 or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def trim_heap() -> None:
    """Gives freed memory back to the kernel, where the C library is glibc, which would keep most of it."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


def background(threads: int, name: str) -> ThreadPoolExecutor:
    """Threads with work that goes after the steps, where threads have priorities of their own (Linux)."""
    return ThreadPoolExecutor(threads, name, initializer=_lower_priority)


def _lower_priority() -> None:
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, get_native_id(), NICENESS)
