"""Lets the body of a request into memory no faster than its route reads it.

Serve's replica takes a body from the network as fast as it comes and queues it without a bound: of a recording that
comes faster than the disk writes, and of one that never ends, all would be in memory. With a bound the network waits.
"""

from __future__ import annotations

import asyncio
from typing import Any

MESSAGES = 8
"""That wait to be read, of some 64 KiB each."""


def take_bodies_as_they_are_read() -> None:
    """Called in the constructor of the ingress, before Serve takes requests.

    Acts only where routes run in the replica's own event loop, as `configs/ray.env` has it: only there does Serve wait
    for room in its queue.
    """
    from ray.serve._private import constants
    from ray.serve._private.direct_ingress_http_util import ASGIDIReceiveProxy

    if constants.RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD:
        return

    def queue(proxy: Any) -> asyncio.Queue[Any]:
        if proxy._queue is None:
            proxy._queue = asyncio.Queue(MESSAGES)
        bounded: asyncio.Queue[Any] = proxy._queue
        return bounded

    ASGIDIReceiveProxy.queue = property(queue)
