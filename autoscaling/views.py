"""The replicas of each engine, as the routers of this process see them.

This module exists apart from `autoscaling.router` for a reason: Ray pickles the module of a router class by value, so
its globals are a private copy. What gate and router share must live in a module that both import at run time: this one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Protocol


class ReplicaView(Protocol):
    """View of an engine's replicas for the gate."""

    def running(self) -> int:
        """Replicas that can take requests now. Starting and stopping ones do not count."""

    def slots(self) -> int:
        """Requests that the running replicas can work on at one time."""


class EngineBusy(Exception):
    """Every slot of every running replica is taken, and the stanza says `when_busy = "refuse"`."""


SENT: ContextVar[Callable[[], None] | None] = ContextVar("sent", default=None)
"""Called when a call goes out to a replica, in the context of its caller; again where a replica refused it.

`Timings.measured` sets it, and `EngineRouter.on_send_request` calls it.
"""

VIEWS: dict[tuple[str, str], ReplicaView] = {}
"""(application, deployment) to its view. A router enters itself when its handle is first used."""
