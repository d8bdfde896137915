"""Hardens how Serve's replica takes requests, before the app sees them, and shortens how another replica calls it.

    bound_body_queue                 a body comes into memory no faster than its route reads it
    ignore_client_control_headers    clients cannot switch off how disconnects and time limits are treated
    keep_replica_port_local          the replicas' own port stays off the network on a machine that serves alone
    bound_websockets                 no compression, no message above 16 MiB, and few of them in memory
    send_token_as_metadata           calls carry the cluster's token without an interceptor around each
    call_at_shutdown                 streams without an end are ended, for which the replica would wait before it goes

Serve's replica takes a body from the network as fast as it comes and queues it without a bound: of a recording that
comes faster than the disk writes, and of one that never ends, all would be in memory. With a bound the network waits.

Serve's replicas take each other's calls on a gRPC port that listens on every interface and unpickles what arrives. On a
cluster that port must be reachable from the other nodes, and the network between them must be closed to others
(docs/operating.md). On one machine it belongs on loopback.

These calls carry the cluster's token. Ray's interceptors look it up for each of them, and around a call that is
intercepted gRPC makes a task and a second call object, and a generator around each event of a stream.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

MESSAGES = {"http": 8, "websocket": 1}
"""Messages that wait to be read: of a body, of some 64 KiB each, or whole ones of a websocket."""

SOCKET_BYTES = 16 * 1024**2
"""A longer message closes its websocket. The route refuses less than that, and keeps the connection."""
FRAGMENTS = 16 * 1024
"""Frames of one message. Empty ones add no bytes, and would pile up without an end."""
UNREAD_BYTES = 1024**2
"""Bytes that wait for a client which goes on sending: it is left then. Pongs are written without waiting for it."""

UNTRUSTED_HEADER_PARSERS = {
    "parse_disconnect_disabled_header": lambda headers: False,
    "parse_request_timeout_header": lambda headers, default: default,
}
"""Functions with which Serve's replica reads two headers, and what replaces each. HAProxy drops these headers; a client
that reaches the replica's own port could still send them."""

LOOPBACK_ADDRESS = "127.0.0.2"
"""Address of a node that is alone. Ray would replace 127.0.0.1 by an address of the network."""

LOOPBACK_VARIABLE = "PARLANCE_LOOPBACK"

PORT_OPENER = "add_port_to_grpc_server"
"""The function with which Serve's replica opens its port."""

STUB = "ASGIServiceStub"
"""The class with which Serve's router calls replicas."""


SHUTDOWN = "_perform_graceful_shutdown"
"""The method with which Serve's replica ends: it waits for every request that is under way."""


def ignore_client_control_headers() -> None:
    """Called in the constructor of the ingress.

    Raises RuntimeError where this version of Ray reads those headers with other functions: the start is refused then.
    """
    from ray.serve._private import replica

    for name, parser in UNTRUSTED_HEADER_PARSERS.items():
        if not hasattr(replica, name):
            raise RuntimeError(
                f"this version of Ray has no `{name}` in `{replica.__name__}`, so clients might switch off the way "
                "in which Serve "
                "handles disconnects; install the version in requirements/"
            )
        setattr(replica, name, parser)


def bound_body_queue() -> None:
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
            proxy._queue = asyncio.Queue(MESSAGES[proxy._type])
        bounded: asyncio.Queue[Any] = proxy._queue
        return bounded

    ASGIDIReceiveProxy.queue = property(queue)


def bound_websockets() -> None:
    """Called in the constructor of the ingress, before Serve opens the port of its routes.

    Raises RuntimeError where this version of Ray serves them otherwise: the start is refused then.
    """
    import uvicorn
    from ray.serve._private import http_util
    from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

    if getattr(http_util, "uvicorn", None) not in (uvicorn, _BOUNDED):
        raise RuntimeError(
            f"this version of Ray does not serve by `uvicorn` in `{http_util.__name__}`, so messages of websockets "
            "would have no bound; install the version in requirements/"
        )

    class BoundedSocket(WebSocketsSansIOProtocol):
        """One whose client cannot have bytes pile up here without reading them."""

        async def run_asgi(self) -> None:
            await super().run_asgi()
            if self.transport.get_write_buffer_size():
                # Closing waits until the client has read all; a client that reads has done so by then.
                self.loop.call_later(self.close_timeout, self.transport.abort)

        def handle_ping(self) -> None:
            if self.transport.get_write_buffer_size() > UNREAD_BYTES:
                self.transport.abort()
                return
            super().handle_ping()

        def handle_cont(self, event: Any) -> None:
            if len(self.frames) >= FRAGMENTS:
                self.transport.abort()
                return
            super().handle_cont(event)

    _BOUNDED.Server = uvicorn.Server
    _BOUNDED.Config = partial(uvicorn.Config, ws=BoundedSocket, ws_max_size=SOCKET_BYTES, ws_per_message_deflate=False)
    http_util.uvicorn = _BOUNDED


_BOUNDED = SimpleNamespace()
"""What Serve takes for the module `uvicorn`."""


def keep_replica_port_local() -> None:
    """Called in each replica's constructor, before Serve opens the port. Acts only if PARLANCE_LOOPBACK is set.

    Raises RuntimeError where it cannot: the start is refused then.
    """
    if not os.environ.get(LOOPBACK_VARIABLE):
        return
    from ray.serve._private import replica

    if not hasattr(replica, PORT_OPENER):
        raise RuntimeError(
            f"this version of Ray has no `{PORT_OPENER}` in `{replica.__name__}`, so the port of replicas would be "
            f"open to the network; use the version in requirements/, or unset {LOOPBACK_VARIABLE} where a firewall "
            "closes that port"
        )
    replica.add_port_to_grpc_server = lambda server, address: server.add_insecure_port(
        address.replace("[::]", LOOPBACK_ADDRESS)
    )


def send_token_as_metadata() -> None:
    """Called in the constructor of the ingress, before a handle calls a replica. Channels stay Ray's own, TLS and all.

    Raises RuntimeError where this version of Ray calls replicas with another class: the start is refused then.
    """
    from ray.serve._private.request_router import replica_wrapper

    if not hasattr(replica_wrapper, STUB):
        raise RuntimeError(
            f"this version of Ray has no `{STUB}` in `{replica_wrapper.__name__}`, so the cluster's token cannot go "
            "with calls of replicas; install the version in requirements/"
        )
    setattr(replica_wrapper, STUB, partial(_stub, getattr(replica_wrapper, STUB)))


def call_at_shutdown(callback: Callable[[], None]) -> None:
    """Called in a replica's constructor: has `callback` called in this loop once the replica is told to go.

    Raises RuntimeError where this version of Ray has another way to do so: the start is refused then.
    """
    from ray.serve._private import replica

    loop, shut_down = asyncio.get_running_loop(), getattr(replica.Replica, SHUTDOWN, None)
    if shut_down is None:
        raise RuntimeError(
            f"this version of Ray has no `{SHUTDOWN}` in `{replica.__name__}`, so a replica would wait for streams of "
            "the console before it goes; install the version in requirements/"
        )

    async def announced(self: Any) -> None:
        loop.call_soon_threadsafe(callback)
        await shut_down(self)

    setattr(replica.Replica, SHUTDOWN, announced)


def _stub(ray_stub: Any, channel: Any) -> Any:
    """What `ray_stub` makes for `channel`, each method with the token and without interceptors."""
    from ray._private.authentication import grpc_authentication_client_interceptor as interceptor

    stub, token = ray_stub(channel), interceptor._get_authentication_metadata_tuple()
    for name, method in vars(stub).items():
        method._interceptors = None
        setattr(stub, name, partial(method, metadata=token))
    return stub
