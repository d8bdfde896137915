"""What vLLM does on a CPU while it loads, in less time and memory.

Two things took a quarter of the start of a small model (benchmarks/speed/results/cold_start.md): filling a cache with
zeros that the kernel gives for nothing, and looking for kernels in modules that cannot have any.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from vllm.renderers import hf
from vllm.triton_utils import dispatcher

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
