"""Clocks that stand, databases that fail and bytes that cannot be deleted, as the tests of this folder want them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection

from state.blobs.base import Blobs
from state.database.base import Database, T


class StandingClock:
    """A clock that stands until a test moves `now_s`."""

    def __init__(self, now_s: float = 1_800_000_000) -> None:
        self.now_s = float(now_s)

    def __call__(self) -> float:
        return self.now_s


class WatchedDatabase:
    """A database that counts its transactions, and fails those that a test chooses.

    Attributes:
        fault: the error that a transaction is to end with; None lets it run.
        ran: transactions that were asked for.
    """

    def __init__(self, database: Database, fault: Callable[[Any], Exception | None] = lambda _: None) -> None:
        self._database = database
        self.fault = fault
        self.ran = 0

    async def run(self, transaction: Callable[[Connection], T], **how: Any) -> T:
        self.ran += 1
        if error := self.fault(transaction):
            raise error
        return await self._database.run(transaction, **how)

    async def close(self) -> None:
        await self._database.close()


class BrokenBlobs:
    """A store that cannot delete the folders in `broken` at the moment."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self.put = blobs.put
        self.broken: set[str] = set()

    async def delete_all(self, folder: str) -> None:
        if folder in self.broken:
            raise OSError
        await self._blobs.delete_all(folder)
