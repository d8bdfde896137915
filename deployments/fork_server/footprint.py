"""What is told of fork servers in metrics: how much memory those of a node take, and which starts were forks."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from deployments.fork_server.enter import folders
from deployments.fork_server.server import TITLE

MODULE = "deployments.fork_server.server"
NAMES = (MODULE.encode(), TITLE.encode())
"""One of them is in the command line of a server: the second once it is ready."""


def is_fork() -> bool:
    """Whether a fork server made this process, which has the command line of its server then."""
    return MODULE in sys.orig_argv


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
        process = Path("/proc", str(int(lock.read_text())))
        command = (process / "cmdline").read_bytes()
        if any(name in command for name in NAMES):
            return int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
