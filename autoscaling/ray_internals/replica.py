"""Hardens how Serve's replica takes requests, before the app sees them, and shortens how another replica calls it.

    bound_body_queue                 a body comes into memory no faster than its route reads it
    ignore_client_control_headers    clients cannot switch off how disconnects and time limits are treated
    keep_replica_port_local          the replicas' own port stays off the network on a machine that serves alone
    send_token_as_metadata           calls carry the cluster's token without an interceptor around each
    end_calls_to_lost_nodes          a call fails soon where the machine of its replica is gone
    allow_pings                      a replica answers the pings by which others learn that
    prepare_port                     does what concerns a replica's own port: keep_replica_port_local, allow_pings
    call_at_shutdown                 streams without an end are ended, for which the replica would wait before it goes

Serve's replica takes a body from the network as fast as it comes and queues it without a bound: of a recording that
comes faster than the disk writes, and of one that never ends, all would be in memory. With a bound the network waits.

Serve's replicas take each other's calls on a gRPC port that listens on every interface and unpickles what arrives. On a
cluster that port must be reachable from the other nodes, and the network between them must be closed to others
(docs/operating.md). On one machine it belongs on loopback.

These calls carry the cluster's token. Ray's interceptors look it up for each of them, and around a call that is
intercepted gRPC makes a task and a second call object, and a generator around each event of a stream.

A machine that loses its network or its power closes no connection. Ray's channels ask after five minutes of silence;
until then a call waits. Asked more often, a replica's server would take it for abuse and close the connection.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import partial
from typing import Any

MESSAGES = {"http": 8, "websocket": 1}
"""Messages that wait to be read: of a body, of some 64 KiB each, or whole ones of a websocket."""

UNTRUSTED_HEADER_PARSERS = {
    "parse_disconnect_disabled_header": lambda headers: False,
    "parse_request_timeout_header": lambda headers, default: default,
}
"""Functions with which Serve's replica reads two headers, and what replaces each. HAProxy drops these headers; a client
that reaches the replica's own port could still send them."""

LOOPBACK_ADDRESS = "127.0.0.1"
"""Address of a node that is alone."""

LOOPBACK_VARIABLE = "PARLANCE_LOOPBACK"

PORT_OPENER = "add_port_to_grpc_server"
"""The function with which Serve's replica opens its port."""

STUB = "ASGIServiceStub"
"""The class with which Serve's router calls replicas."""

CHANNEL, REGISTER = "init_grpc_channel", "add_ASGIServiceServicer_to_server"
"""The functions by which Serve's router makes a channel to a replica, and by which a replica registers its methods."""

PING_S = 20.0
"""Silence on a channel with calls after which the replica's machine is asked; and seconds that it has to answer."""

SHUTDOWN = "_perform_graceful_shutdown"
"""The method with which Serve's replica ends: it waits for every request that is under way."""


def ignore_client_control_headers() -> None:
    """Called in the constructor of the ingress.

    Raises RuntimeError where this version of Ray reads those headers with other functions: the start is refused then.
    """
    from ray.serve._private import replica

    for name, parser in UNTRUSTED_HEADER_PARSERS.items():
        _part(replica, name, "clients might switch off the way in which Serve handles disconnects")
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


def keep_replica_port_local() -> None:
    """Keeps the port of a replica on loopback. Acts only if PARLANCE_LOOPBACK is set.

    Raises RuntimeError where it cannot: the start is refused then.
    """
    if not os.environ.get(LOOPBACK_VARIABLE):
        return
    from ray.serve._private import replica

    remedy = f"use the version in requirements/, or unset {LOOPBACK_VARIABLE} where a firewall closes that port"
    _part(replica, PORT_OPENER, "the port of replicas would be open to the network", remedy)
    replica.add_port_to_grpc_server = lambda server, address: server.add_insecure_port(
        address.replace("[::]", LOOPBACK_ADDRESS)
    )


def send_token_as_metadata() -> None:
    """Called in the constructor of the ingress, before a handle calls a replica. Channels stay Ray's own, TLS and all.

    Raises RuntimeError where this version of Ray calls replicas with another class: the start is refused then.
    """
    from ray.serve._private.request_router import replica_wrapper

    stub = _part(replica_wrapper, STUB, "the cluster's token cannot go with calls of replicas")
    setattr(replica_wrapper, STUB, partial(_stub, stub))


def end_calls_to_lost_nodes() -> None:
    """Called in the constructor of the ingress, before a handle calls a replica, which must `allow_pings`.

    Raises RuntimeError where this version of Ray makes channels with another function: the start is refused then.
    """
    from ray.serve._private.request_router import replica_wrapper

    make = _part(replica_wrapper, CHANNEL, "calls to a machine that is gone would wait for minutes")
    times = ("keepalive_time_ms", "keepalive_timeout_ms", "http2.ping_timeout_ms")
    pings = [*((f"grpc.{name}", round(PING_S * 1000)) for name in times), ("grpc.http2.max_pings_without_data", 0)]

    setattr(replica_wrapper, CHANNEL, lambda address, options=(), **o: make(address, options=[*options, *pings], **o))


def prepare_port() -> None:
    """Called in each replica's constructor, before Serve opens its port for other replicas.

    Raises RuntimeError as the two functions that it calls.
    """
    keep_replica_port_local()
    allow_pings()


def allow_pings() -> None:
    """Gives the port of a replica a server that answers pings as often as `end_calls_to_lost_nodes` has them sent.

    Raises RuntimeError where this version of Ray registers methods with another function: the start is refused then.
    """
    from ray.serve._private import replica

    register = _part(replica, REGISTER, "replicas would close connections on which they are asked whether they live")

    size = ("grpc.max_receive_message_length", replica.RAY_SERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH)
    # Half, so that no clock makes a ping come too early.
    pings = ("grpc.http2.min_ping_interval_without_data_ms", round(PING_S * 500))

    def registered(servicer: Any, server: Any) -> None:
        # What a server allows is settled where it is made, and Serve has made it before this constructor.
        servicer._server = replica.create_grpc_server_with_interceptors(asynchronous=True, options=[size, pings])
        register(servicer, servicer._server)

    setattr(replica, REGISTER, registered)


def call_at_shutdown(callback: Callable[[], None]) -> None:
    """Called in a replica's constructor: has `callback` called in this loop once the replica is asked to stop.

    Raises RuntimeError where this version of Ray has another way to do so: the start is refused then.
    """
    from ray.serve._private import replica

    shut_down = _part(replica.Replica, SHUTDOWN, "a replica would wait for streams of the console before it goes")
    loop = asyncio.get_running_loop()

    async def announced(self: Any) -> None:
        loop.call_soon_threadsafe(callback)
        await shut_down(self)

    setattr(replica.Replica, SHUTDOWN, announced)


def _part(owner: Any, name: str, otherwise: str, remedy: str = "install the version in requirements/") -> Any:
    """The attribute `name` of a module or class of Ray. Raises RuntimeError where this version has none."""
    if not hasattr(owner, name):
        raise RuntimeError(f"this version of Ray has no `{name}` in `{owner.__name__}`, so {otherwise}; {remedy}")
    return getattr(owner, name)


def _stub(ray_stub: Any, channel: Any) -> Any:
    """Returns the stub that `ray_stub` makes for `channel`, each method with the token and without interceptors."""
    from ray._private.authentication import grpc_authentication_client_interceptor as interceptor

    stub, token = ray_stub(channel), interceptor._get_authentication_metadata_tuple()
    for name, method in vars(stub).items():
        method._interceptors = None
        setattr(stub, name, partial(method, metadata=token))
    return stub
