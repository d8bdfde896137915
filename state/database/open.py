"""The database that an address names, as it is or with a schema that this code can use."""

from __future__ import annotations

from functools import partial

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from state.database.base import PATIENT_S, WAIT_S, Database
from state.database.migrate import require, upgrade_schema

MIGRATION_S = 3600.0
"""Seconds that one statement of a migration may take."""


async def open_database(url: str, wait_s: float = WAIT_S, *, upgrade: bool = True) -> Database:
    """Opens the database at `url`, with a schema that this code can use then.

    An older schema is brought up to date or, with `upgrade=False`, refused: no process should change by the way what
    others work with. A newer one is used where it says that this code can.

    Raises ValueError for an address of another kind and for a schema that cannot be used, STATE_UNAVAILABLE if the
    database cannot be reached.
    """
    if upgrade:
        await migrate(url, wait_s=wait_s)
    database = connect(url, wait_s)
    try:
        await database.run(require)
    except BaseException:
        await database.close()
        raise
    return database


async def migrate(url: str, revision: str = "head", wait_s: float = WAIT_S) -> str:
    """Brings the schema to `revision` and returns what it is at then. Raises what `open_database` raises."""
    database = connect(url, wait_s, MIGRATION_S)
    try:
        return await database.run(partial(upgrade_schema, revision=revision), patient=True)
    finally:
        await database.close()


def connect(url: str, wait_s: float = WAIT_S, patient_s: float = PATIENT_S) -> Database:
    """The database at `url` as it is. Raises ValueError.

    `wait_s` bounds the wait for a lock or a connection, and a statement; `patient_s` one that no client waits for.
    """
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

        return PostgresDatabase(address, wait_s, patient_s)
    raise ValueError(f"the database must be a sqlite file or postgresql, not `{backend}`")
