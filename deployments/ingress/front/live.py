"""Places of the live sessions of this process, and the choice of one that gives its place to a new one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from audio.listener import Listener
from concurrency.fairness import OwnerCounter
from contract.errors import OVERLOADED, TOO_MUCH_AT_ONCE
from contract.realtime.limits import (
    REALTIME_FULL_RATE_SESSIONS,
    REALTIME_IDLE_S,
    REALTIME_SESSIONS,
    REALTIME_SOUND_BYTES,
)

RETRY_S = 5


class OpenSession(Protocol):
    """A session that holds a place."""

    @property
    def idle_s(self) -> float:
        """Seconds since a turn of it was transcribed."""

    def leave(self, why: str) -> None:
        """Ends the session, after a notice to its client."""


class LiveSessions:
    """Places of sessions. One organisation may have half of them, and of their sound.

    Attributes:
        most: number of places.
        sound_bytes: bytes that sessions hold, by organisation.
        listener: finds the speech in their sound.
    """

    def __init__(self, most: int = REALTIME_SESSIONS) -> None:
        self.most, self.sound_bytes, self.listener = most, OwnerCounter(), Listener()
        self._places: dict[OpenSession, int] = {}
        self._organisations = OwnerCounter()

    def __len__(self) -> int:
        return len(self._places)

    def require_place(self, organisation: int) -> None:
        """For more sound. Raises OVERLOADED, TOO_MUCH_AT_ONCE."""
        if self.sound_bytes.total >= REALTIME_SOUND_BYTES:
            raise OVERLOADED(retry_after_s=RETRY_S)
        if self.sound_bytes[organisation] >= REALTIME_SOUND_BYTES // 2:
            raise TOO_MUCH_AT_ONCE("too much sound of your organisation waits to be transcribed", retry_after_s=RETRY_S)

    def crowd(self, organisation: int) -> float:
        """Returns how many times an event of its sessions counts, so that many cost the loop no more than a few."""
        return max(1.0, self._organisations[organisation] / REALTIME_FULL_RATE_SESSIONS)

    @contextmanager
    def session(self, organisation: int, session: OpenSession) -> Iterator[None]:
        """A place. Where all are taken, an idle session gives its own. Raises OVERLOADED, TOO_MUCH_AT_ONCE."""
        idle = self._idle() if len(self) >= self.most else None
        if len(self) >= self.most and idle is None:
            raise OVERLOADED(retry_after_s=RETRY_S)
        if not self._organisations.take(organisation, limit=(most := max(1, self.most // 2))):
            message = f"your organisation has {most} live sessions open, which is its limit"
            raise TOO_MUCH_AT_ONCE(message, retry_after_s=RETRY_S)
        if idle:
            self._release(idle)
            idle.leave("idle")
        self._places[session] = organisation
        try:
            yield
        finally:
            self._release(session)

    def _idle(self) -> OpenSession | None:
        """The session that is idle longest, of the organisation with most sessions of those that have an idle one."""
        idle = [session for session in self._places if session.idle_s >= REALTIME_IDLE_S]
        return max(idle, key=lambda session: (self._organisations[self._places[session]], session.idle_s), default=None)

    def _release(self, session: OpenSession) -> None:
        if (organisation := self._places.pop(session, None)) is not None:
            self._organisations.give_back(organisation)

    def drain(self) -> None:
        """Ends all of them: this process stops."""
        for session in list(self._places):
            session.leave("draining")
