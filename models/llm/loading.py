"""What vLLM does on a CPU while it loads, in less time and memory.

Two things took a quarter of the start of a small model (benchmarks/speed/results/cold_start.md): filling a cache with
zeros that the kernel gives for nothing, and looking for kernels in modules that cannot have any.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode
from vllm.renderers import hf
from vllm.triton_utils import dispatcher

LARGE = 1 << 24
"""Bytes. Smaller tensors are none of ours."""


@contextmanager
def quick_tokenizers() -> Iterator[None]:
    """While a renderer is made: a copy of the tokenizer fewer. It is made when two threads want one at once."""
    pool = hf.maybe_make_thread_pool
    with mock.patch.object(hf, "maybe_make_thread_pool", lambda tokenizer, copies: pool(tokenizer, copies - 1)):
        yield


@contextmanager
def quick_core() -> Iterator[None]:
    """While an engine core is made in this thread, and in no other."""
    everywhere = dispatcher._rebind_kernels

    def rebind(overrides: list[Any]) -> None:
        """Without Triton, kernels in C++ take the place of vLLM's stand-ins, which only its own modules refer to."""
        modules = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "vllm"}
        with mock.patch.object(dispatcher, "sys", SimpleNamespace(modules=modules)):
            everywhere(overrides)

    with mock.patch.object(dispatcher, "_rebind_kernels", rebind), _UntouchedZeros():
        yield


class _UntouchedZeros(TorchFunctionMode):
    """Large tensors of zeros in main memory are pages that nobody has written to, and take none until somebody does."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.zeros and set(kwargs) <= {"dtype", "device"} and len(args) == 1 and isinstance(args[0], int):
            device = torch.device(kwargs.get("device") or torch.get_default_device())
            if device.type == "cpu" and kwargs.get("dtype") is torch.int8 and args[0] >= LARGE:
                return torch.frombuffer(mmap.mmap(-1, args[0]), dtype=torch.int8)
        return func(*args, **kwargs)
