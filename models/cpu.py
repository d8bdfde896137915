"""What suits a processor: the floating-point type that a model runs in, and how many threads a step takes.

A CPU without instructions for bfloat16 emulates it. On one with AVX2 only, vLLM took 5 times as long to read a prompt
in bfloat16 as in float32, and a third of the tokens a second came out of 8 streams.

A step may take all threads that the stanza allows while the cores are free, and one where they are shared. It is some
two hundred parallel regions, and each waits for its slowest thread. Beside one busy process on two cores, two threads
were 7 to 20 times slower than one (measured), while on quiet cores they are faster. So the number follows what the
kernel says: how long our threads stood in line, and how much of the machine is idle. Where the kernel does not say (not
Linux), the number stays.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import get_native_id

BFLOAT16_FEATURES = ("avx512_bf16", "amx_bf16", "bf16", "arm_bf16")
"""Names that torch gives to instructions for bfloat16."""

CHECK_S = 0.5
"""Seconds between two looks; a look reads one small file for each thread."""
CROWDED = 0.6
"""Share of the time that our threads waited for a core, above which one thread is better.

On two cores, what serves an answer besides (ingress, proxy, cluster: 0.3 cores) makes two threads wait for 0.25 to 0.45
together. A process that never sleeps adds a third runnable thread, so each waits a third of the time: 0.67.
"""
FREE_CORES = 0.4
"""Idle cores for each further thread, above which more are tried. Beside one thread and the graph 0.75 are idle."""
NICENESS = 10
"""The niceness of threads that work beside the steps."""
TASKS = Path("/proc/self/task")
STAT = Path("/proc/stat")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def fitting_dtype(name: str, device: str) -> str:
    """The dtype `name`, or `float32` on a CPU that would only emulate it."""
    import torch

    if device != "cpu" or name not in ("bfloat16", "float16"):
        return name
    features = torch.cpu.get_capabilities()
    has_instructions = name == "bfloat16" and any(features.get(feature) for feature in BFLOAT16_FEATURES)
    return name if has_instructions else "float32"


class ThreadGovernor:
    """Decides between 1 and `most` threads. Called by the thread that computes, after each step.

    `set_threads` sets their number for the thread that calls it.
    """

    def __init__(self, most: int, set_threads: Callable[[int], None]) -> None:
        self._set_threads = set_threads
        self._most = self.threads = most
        self._figures = self._look()

    def after_step(self) -> None:
        """Looks, if it is time, and changes the number of threads for the steps that follow."""
        if self._most == 1 or time.monotonic() - self._figures[0] < CHECK_S:
            return
        before, self._figures = self._figures, self._look()
        passed, waited, idle = (now - then for now, then in zip(self._figures, before, strict=True))
        target = target_threads(self.threads, self._most, waited / passed, idle / passed)
        if target != self.threads:
            self.threads = target
            self._set_threads(target)

    def _look(self) -> tuple[float, float, float]:
        """The time, seconds that our threads have waited for a core, and idle seconds of all cores."""
        return time.monotonic(), waited_s(), idle_s()


def target_threads(threads: int, most: int, waiting: float, idle_cores: float) -> int:
    """The next number of threads, from the share of time spent waiting and the cores that were idle."""
    if threads > 1:
        return 1 if waiting > CROWDED else threads
    return most if idle_cores > FREE_CORES * (most - 1) else 1


def waited_s() -> float:
    """Seconds that the threads of this process were ready to run and had no core; 0 where the kernel does not say."""
    total_ns = 0
    for task in os.listdir(TASKS) if TASKS.is_dir() else ():
        try:
            total_ns += int((TASKS / task / "schedstat").read_text().split()[1])
        except (OSError, IndexError):
            continue  # a thread that has just ended
    return total_ns / 1e9


def idle_s() -> float:
    """Idle seconds of all cores since the machine started; 0 where the kernel does not say."""
    try:
        return int(STAT.read_text().split(maxsplit=5)[4]) / TICKS_PER_S
    except (OSError, IndexError):
        return 0.0


def background(threads: int, name: str) -> ThreadPoolExecutor:
    """Threads whose work goes after the steps, where threads have priorities of their own (Linux)."""
    return ThreadPoolExecutor(threads, name, initializer=_lower_priority)


def _lower_priority() -> None:
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, get_native_id(), NICENESS)
