"""Reports of starts: the memory of a node's fork servers; a process's age, its imports, and if it is a fork."""

from __future__ import annotations

import builtins
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import get_ident
from typing import Any

from deployments.fork_server.enter import folders
from deployments.fork_server.server import TITLE

MODULE = "deployments.fork_server.server"
NAMES = (MODULE.encode(), TITLE.encode())
"""One of them is in the command line of a server: the second once it is ready."""


def is_fork() -> bool:
    """Says if a fork server made this process, which has the command line of its server then."""
    return MODULE in sys.orig_argv


def age_s() -> float:
    """Seconds since this process was made: by its parent, or before Python was started in it."""
    after_name = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(after_name[19]) / os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class ImportTime:
    """Seconds that a thread has spent with imports."""

    spent_s: float = 0.0


@contextmanager
def importing() -> Iterator[ImportTime]:
    """Measures the imports of this thread while the block runs. Imports that others make are not slower for it."""
    total, thread, depth, real = ImportTime(), get_ident(), 0, builtins.__import__

    def timed(*arguments: Any, **named: Any) -> Any:
        nonlocal depth
        if depth or get_ident() != thread:  # what a module imports is a part of its own import
            return real(*arguments, **named)
        depth, began_s = 1, time.perf_counter()
        try:
            return real(*arguments, **named)
        finally:
            depth = 0
            total.spent_s += time.perf_counter() - began_s

    builtins.__import__ = timed
    try:
        yield total
    finally:
        builtins.__import__ = real


def memory_bytes(worker: list[str]) -> int:
    """Resident memory of the fork servers on the node of a worker, all interpreters together; 0 where none runs.

    `worker` are the arguments of a process that Ray has started.
    """
    total = 0
    with suppress(KeyError, OSError):  # no worker of Ray; or none has started here yet
        for lock in folders(worker)[1].glob("*.lock"):
            total += _resident_bytes(lock)
    return total


def _resident_bytes(lock: Path) -> int:
    """The memory of the server that a lock file names. One that has ended leaves its file; its pid may be another's."""
    with suppress(OSError, ValueError):
        process = Path("/proc", str(int(lock.read_text().partition(" ")[0])))
        command = (process / "cmdline").read_bytes()
        if any(name in command for name in NAMES):
            return int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
