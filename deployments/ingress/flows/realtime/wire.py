"""What a session needs of the way to its client, whatever that is."""

from __future__ import annotations

from typing import Protocol

from contract.realtime.replies import Event

NORMAL, POLICY = 1000, 1008
"""Codes with which a websocket is closed."""


class Wire(Protocol):
    """The way to the client. A client that has gone is told nothing, and that is no error."""

    async def tell(self, event: Event) -> None:
        """Sends an event, after those before it."""
        ...

    async def close(self, code: int, reason: str) -> None:
        """Ends the connection; `reason` is a sentence."""
        ...
