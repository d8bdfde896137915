"""Live sessions of this process: how many there may be, and whom to tell when it goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from audio.listener import Listener
from contract.errors import OVERLOADED
from contract.realtime.limits import REALTIME_SESSIONS, REALTIME_SOUND_BYTES

RETRY_S = 5


class LiveSessions:
    """Those that are open; each is known by what ends it.

    Attributes:
        most: how many there may be.
        sound_bytes: that all of them hold.
        listener: who finds the speech in it.
    """

    def __init__(self, most: int = REALTIME_SESSIONS) -> None:
        self.most, self.sound_bytes, self.listener = most, 0, Listener()
        self._ends: set[Callable[[], None]] = set()

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def has_room(self) -> bool:
        """Whether more sound may come."""
        return self.sound_bytes < REALTIME_SOUND_BYTES

    @contextmanager
    def session(self, end: Callable[[], None]) -> Iterator[None]:
        """One session. `end` is called if this process is to go meanwhile. Raises OVERLOADED."""
        if len(self._ends) >= self.most:
            raise OVERLOADED(retry_after_s=RETRY_S)
        self._ends.add(end)
        try:
            yield
        finally:
            self._ends.discard(end)

    def drain(self) -> None:
        """Ends all of them."""
        for end in list(self._ends):
            end()
