"""What Serve's replica does with requests before the app sees them, changed where it trusts clients too much.

Lets the body of a request into memory no faster than its route reads it.

Serve's replica takes a body from the network as fast as it comes and queues it without a bound: of a recording that
comes faster than the disk writes, and of one that never ends, all would be in memory. With a bound the network waits.
"""

from __future__ import annotations

import asyncio
from typing import Any

MESSAGES = 8
"""That wait to be read, of some 64 KiB each."""


CARELESS = {
    "parse_disconnect_disabled_header": lambda headers: False,
    "parse_request_timeout_header": lambda headers, default: default,
}
"""What Serve's replica reads two headers with, and what it gets instead. HAProxy drops them; but a client that reaches
the replica's own port could switch off with them how disconnects and time limits are treated."""


def ignore_headers_against_care() -> None:
    """Called in the constructor of the ingress.

    Raises RuntimeError where this version of Ray reads those headers with something else: the start is refused then.
    """
    from ray.serve._private import replica

    for name, careful in CARELESS.items():
        if not hasattr(replica, name):
            raise RuntimeError(
                f"this version of Ray has no `{name}` in `{replica.__name__}`, so clients might switch off the way "
                "in which Serve "
                "handles disconnects; install the version in requirements/"
            )
        setattr(replica, name, careful)


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
