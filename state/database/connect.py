"""The database that an address names.

sqlite:///...       `sqlite.py`      one writer thread, several transactions in one commit
postgresql://...    `postgres.py`    a pool of connections
"""

from __future__ import annotations

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from state.database.base import WAIT_S, Database


async def open_database(url: str, wait_s: float = WAIT_S) -> Database:
    """Opens the database at `url` and brings its schema up to date.

    Raises ValueError for an address of another kind, STATE_UNAVAILABLE if it cannot be reached.
    """
    from state.database.migrate import upgrade

    database = connect(url, wait_s)
    try:
        await database.run(upgrade)
    except BaseException:
        await database.close()
        raise
    return database


def connect(url: str, wait_s: float = WAIT_S) -> Database:
    """The database at `url` as it is. `wait_s` bounds the wait for a lock or a connection. Raises ValueError."""
    try:
        address = make_url(url)
    except ArgumentError:
        raise ValueError("the database address must look like sqlite:///path or postgresql://user@host/name") from None
    backend = address.get_backend_name()
    # Drivers are imported when chosen: an embedded server does not need asyncpg.
    if backend == "sqlite" and address.database not in (None, "", ":memory:"):
        from state.database.sqlite import SqliteDatabase

        return SqliteDatabase(str(address.database), wait_s)
    if backend == "postgresql":
        from state.database.postgres import PostgresDatabase

        return PostgresDatabase(address, wait_s)
    raise ValueError(f"the database must be a sqlite file or postgresql, not `{backend}`")
