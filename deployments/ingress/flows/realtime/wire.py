"""Interface of the way to the client of a session."""

from __future__ import annotations

from typing import Any, Protocol

NORMAL, POLICY = 1000, 1008
"""Codes with which a websocket is closed."""


class Wire(Protocol):
    """The way to the client. Nothing is sent to a client that has gone, and no error raised."""

    async def send(self, type: str, **members: Any) -> None:
        """Sends an event, after those before it. All times in events count from the first sound of the session."""
        ...

    async def close(self, code: int, reason: str) -> None:
        """Ends the connection; `reason` is a sentence."""
        ...
