"""Live sessions of this process: how many there may be, and whom to tell when it goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from audio.listener import Listener
from concurrency.fairness import OwnerCounter
from contract.errors import OVERLOADED, TOO_MUCH_AT_ONCE
from contract.realtime.limits import REALTIME_SESSIONS, REALTIME_SOUND_BYTES

RETRY_S = 5


class LiveSessions:
    """Those that are open; each is known by what ends it. One organisation may have half of them, and of their sound.

    Attributes:
        most: how many there may be.
        sound_bytes: that they hold, by organisation.
        listener: who finds the speech in it.
    """

    def __init__(self, most: int = REALTIME_SESSIONS) -> None:
        self.most, self.sound_bytes, self.listener = most, OwnerCounter(), Listener()
        self._ends: set[Callable[[], None]] = set()
        self._organisations = OwnerCounter()

    def __len__(self) -> int:
        return len(self._ends)

    def require_room(self, organisation: int) -> None:
        """For more sound. Raises OVERLOADED, TOO_MUCH_AT_ONCE."""
        if self.sound_bytes.total >= REALTIME_SOUND_BYTES:
            raise OVERLOADED(retry_after_s=RETRY_S)
        if self.sound_bytes[organisation] >= REALTIME_SOUND_BYTES // 2:
            raise TOO_MUCH_AT_ONCE("too much sound of your organisation waits to be heard", retry_after_s=RETRY_S)

    @contextmanager
    def session(self, organisation: int, end: Callable[[], None]) -> Iterator[None]:
        """One session. `end` is called if this process is to go meanwhile. Raises OVERLOADED, TOO_MUCH_AT_ONCE."""
        if len(self._ends) >= self.most:
            raise OVERLOADED(retry_after_s=RETRY_S)
        if not self._organisations.take(organisation, limit=(most := max(1, self.most // 2))):
            message = f"your organisation has {most} live sessions open, which is its limit"
            raise TOO_MUCH_AT_ONCE(message, retry_after_s=RETRY_S)
        self._ends.add(end)
        try:
            yield
        finally:
            self._ends.discard(end)
            self._organisations.give_back(organisation)

    def drain(self) -> None:
        """Ends all of them."""
        for end in list(self._ends):
            end()
