"""Keeps the replicas' own port off the network on a machine that serves alone.

Serve's replicas take each other's calls on a gRPC port that listens on every interface and unpickles what arrives. On a
cluster that port must be reachable from the other nodes, and the network between them must be closed to others (README,
"Security"). On one machine it belongs on loopback.
"""

from __future__ import annotations

import os

ADDRESS = "127.0.0.2"
"""Address of a node that is alone. Ray would replace 127.0.0.1 by an address of the network."""

VARIABLE = "PARLANCE_LOOPBACK"

NAME = "add_port_to_grpc_server"
"""What Serve's replica opens the port with."""


def keep_replica_port_local() -> None:
    """Called in each replica's constructor, before Serve opens the port. Acts only if PARLANCE_LOOPBACK is set.

    Raises RuntimeError where it cannot: the start is refused then.
    """
    if not os.environ.get(VARIABLE):
        return
    from ray.serve._private import replica

    if not hasattr(replica, NAME):
        raise RuntimeError(
            f"this version of Ray has no `{NAME}` in `{replica.__name__}`, so the port of replicas would be open to "
            f"the network; install the version in requirements/, or unset {VARIABLE} if a firewall closes that port"
        )
    replica.add_port_to_grpc_server = lambda server, address: server.add_insecure_port(address.replace("[::]", ADDRESS))
