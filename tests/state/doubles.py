"""Clocks that stand, databases that fail and bytes that cannot be deleted, as the tests of this folder want them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection

from state.billing import upkeep
from state.blobs.base import Blobs
from state.database.base import Database, T
from state.database.open import connect


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


class LateDatabase(WatchedDatabase):
    """A database whose marks wait until they may be written."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.may_write = asyncio.Event()

    async def run(self, transaction: Callable[[Connection], T], **how: Any) -> T:
        if getattr(transaction, "func", None) is upkeep.mark:
            await self.may_write.wait()
        return await super().run(transaction, **how)


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


DAY_S = 86_400
JULIAN_DAY_OF_1970 = 2440587.5
SLACK_S = 0.001
"""Julian days are not exact to the second."""

IN_POSTGRESQL = (
    "CREATE SCHEMA IF NOT EXISTS virtual",
    "CREATE TABLE IF NOT EXISTS virtual.clock AS SELECT CAST(0 AS double precision) AS now_s",
    "CREATE OR REPLACE FUNCTION virtual.statement_timestamp() RETURNS timestamptz STABLE LANGUAGE sql "
    "AS 'SELECT to_timestamp(now_s) FROM virtual.clock'",
    # Before what is there for all, so that it is called instead.
    "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = virtual, pg_catalog, public', "
    "current_database()); END $$",
)


class VirtualTime:
    """The time of one database, in whole seconds since 1970. It takes the place of a `Clock`, too."""

    def __init__(self, database: Database, now_s: int) -> None:
        self.database = database
        self.now_s = now_s

    @classmethod
    async def over(cls, url: str, now_s: int) -> VirtualTime:
        """Opens the database at `url`, whose schema must be there, with a time of its own."""
        if url.startswith("postgresql"):
            before = connect(url)
            for statement in IN_POSTGRESQL:
                await before.run(lambda connection, text=statement: connection.exec_driver_sql(text) and None)
            await before.close()
        time = cls(connect(url), now_s)
        if url.startswith("sqlite"):
            await time.database.run(time._replace_julianday)
        await time.set(now_s)
        return time

    def __call__(self) -> float:
        return self.now_s

    async def adjust(self, database: Database) -> None:
        """Does nothing: this is the database's time."""

    def _replace_julianday(self, connection: Connection) -> None:
        def julianday(_: str) -> float:
            return JULIAN_DAY_OF_1970 + (self.now_s + SLACK_S) / DAY_S

        driver = connection.connection.driver_connection
        assert driver is not None
        driver.create_function("julianday", 1, julianday)

    async def set(self, now_s: int) -> None:
        self.now_s = now_s

        def update(connection: Connection) -> None:
            if connection.dialect.name == "postgresql":
                connection.exec_driver_sql(f"UPDATE virtual.clock SET now_s = {now_s}")

        await self.database.run(update)
