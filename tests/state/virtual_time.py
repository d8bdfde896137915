"""A clock of a database that a test sets: what its statements take for now."""

from __future__ import annotations

from sqlalchemy import Connection

from state.database.base import Database, connect

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
    """The time of one database, in whole seconds since 1970."""

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

    def _replace_julianday(self, connection: Connection) -> None:
        def julianday(_: str) -> float:
            return JULIAN_DAY_OF_1970 + (self.now_s + SLACK_S) / DAY_S

        driver = connection.connection.driver_connection
        assert driver is not None
        driver.create_function("julianday", 1, julianday)

    async def set(self, now_s: int) -> None:
        """It is `now_s`, until it is set again."""
        self.now_s = now_s

        def update(connection: Connection) -> None:
            if connection.dialect.name == "postgresql":
                connection.exec_driver_sql(f"UPDATE virtual.clock SET now_s = {now_s}")

        await self.database.run(update)
