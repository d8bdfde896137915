"""The database's time in this process, without asking for it each time.

For what is not a row: signed addresses, and how long a body may take. What is a row is compared in SQL, by `NOW_S`.
"""

from __future__ import annotations

import time

from state.database.base import Database, now_s


class Clock:
    """Seconds since 1970, as the database last said and this machine has counted since. Call it.

    The clock that this machine shows may be wrong, and may be set while we run; neither changes anything here.
    """

    def __init__(self, said_s: float, at_s: float) -> None:
        self._difference_s = said_s - at_s

    @classmethod
    async def by(cls, database: Database) -> Clock:
        """A clock that goes by `database`. Raises STATE_UNAVAILABLE."""
        return cls(await database.run(now_s), _counted_s())

    async def adjust(self, database: Database) -> None:
        """Asks again. Raises STATE_UNAVAILABLE."""
        self._difference_s = await database.run(now_s) - _counted_s()

    def __call__(self) -> float:
        return _counted_s() + self._difference_s


def _counted_s() -> float:
    # Not monotonic(), which stands still while a machine sleeps.
    return time.clock_gettime(time.CLOCK_BOOTTIME)
