"""The cache of keys and values of a CPU: no memory until it is written to, and given back by an engine that rests.

An engine rests if no request comes for a while. It gives back more than a third of its own memory
(benchmarks/speed/results/memory.md), and the next answer is no later for it: only the prompts that it begins with are
read again.
"""

from __future__ import annotations

import logging
import mmap
import queue
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from vllm.v1.engine.core import EngineCore

from models.cpu import trim_heap

log = logging.getLogger(f"parlance.{__name__}")

LARGE_BYTES = 1 << 24
"""Zeros of fewer bytes are allocated as torch does it."""

Command = Callable[[], object]


class Pages(TorchFunctionMode):
    """While it is entered, large tensors of zeros in main memory are pages that take no memory until written to."""

    def __init__(self) -> None:
        super().__init__()
        self._mapped: list[mmap.mmap] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.zeros and set(kwargs) <= {"dtype", "device"} and len(args) == 1 and isinstance(args[0], int):
            device = torch.device(kwargs.get("device") or torch.get_default_device())
            if device.type == "cpu" and kwargs.get("dtype") is torch.int8 and args[0] >= LARGE_BYTES:
                self._mapped.append(mmap.mmap(-1, args[0]))
                return torch.frombuffer(self._mapped[-1], dtype=torch.int8)
        return func(*args, **kwargs)

    def empty(self) -> None:
        """Gives all of it back to the kernel: zeros again. Where the kernel takes nothing back, all stays as it is."""
        with suppress(OSError):
            for mapped in self._mapped:
                mapped.madvise(mmap.MADV_REMOVE)


def rest(core: EngineCore, pages: Pages) -> None:
    """Forgets the prompts that `core` has read, and gives back their memory, unless a request still needs some."""
    if core.reset_prefix_cache():
        pages.empty()
        trim_heap()
        log.info("idle: released the cache")


class Commands(queue.SimpleQueue[Command | None]):
    """A queue with a reader that calls `on_silence` once after `silence_s` without a command; None is never."""

    def __init__(self, silence_s: float | None, on_silence: Callable[[], None]) -> None:
        self._silence_s, self._on_silence = silence_s, on_silence

    def next(self) -> Command | None:
        """Waits for a command."""
        with suppress(queue.Empty):
            return self.get(timeout=self._silence_s)
        self._on_silence()
        return self.get()
