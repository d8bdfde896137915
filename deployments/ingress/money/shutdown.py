"""What is still done when this process is told to end before its requests have: their bills.

Serve lets a replica finish its requests (`DRAIN_S`), and closes the state then. Past that it kills without notice, and
what was marked is billed by another process. In between is the node that is stopped: Ray sends SIGTERM, by which a
worker ends as Python ends, through `atexit`.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from contract.errors import without_text

log = logging.getLogger(f"parlance.{__name__}")

SETTLE_S = 5.0
"""Ray kills some seconds after SIGTERM."""


def run_at_exit(work: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Has `work` done in the running event loop when the process ends, if that loop runs in another thread still.

    Returns what takes it back.
    """
    loop = asyncio.get_running_loop()

    def settle() -> None:
        if not loop.is_running():
            return
        try:
            asyncio.run_coroutine_threadsafe(work(), loop).result(SETTLE_S)
        except Exception as error:
            log.error("could not bill the open requests at shutdown: %s", without_text(error))

    atexit.register(settle)
    return lambda: atexit.unregister(settle)
