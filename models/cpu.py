"""What suits a processor: formats and layout of a model's numbers, and what threads and freed memory take beside it.

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


def multiplies_int8(device: str) -> bool:
    """Whether a model runs quicker with weights in 8 bits: AVX-512 VNNI on a CPU, which is what was measured."""
    import torch

    return device == "cpu" and bool(torch.cpu.get_capabilities().get("avx512_vnni"))


def has_layouts() -> bool:
    """Whether torch multiplies by weights that were laid out for the processor (`mkldnn::_linear_pointwise`).

    They need be laid out once, not in each product. Where that was not measured (not x86), it counts as not there.
    """
    import torch

    return platform.machine() in ("x86_64", "AMD64") and torch.backends.mkldnn.is_available()


def trim_heap() -> None:
    """Gives freed memory back to the kernel, where the C library is glibc, which would keep most of it."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


def background(threads: int, name: str) -> ThreadPoolExecutor:
    """Threads whose work goes after the steps, where threads have priorities of their own (Linux)."""
    return ThreadPoolExecutor(threads, name, initializer=_lower_priority)


def _lower_priority() -> None:
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, get_native_id(), NICENESS)
