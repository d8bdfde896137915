"""One small interface over both databases: `await database.run(transaction)`.

A transaction is a plain function over a synchronous SQLAlchemy connection; repositories are such functions, written
once. `run` commits when it returns and rolls back when it raises. A submitted transaction runs to its end even if the
waiting task is cancelled, so a client that disconnects never leaves one half done.

    sqlite:///...       `sqlite.py`      one writer thread, several transactions in one commit
    postgresql://...    `postgres.py`    a pool of connections
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from sqlalchemy import Connection, Insert, Table
from sqlalchemy.dialects import postgresql, sqlite

T = TypeVar("T")

WAIT_S = 4.0
"""How long a transaction waits for a lock or a connection: clients get their 503 within 5 s."""


class RowRefused(Exception):
    """A constraint refused a row: it exists already, or refers to nothing.

    Carries no message: the database's own quotes the row, which may hold a secret.
    """


class Database(Protocol):
    """Where transactions run."""

    async def run(self, transaction: Callable[[Connection], T], *, durable: bool = True, row: int | None = None) -> T:
        """Runs `transaction` and returns its result after the commit.

        With `durable=False` the answer does not wait for the disk: other transactions see the result, but a power
        failure can lose it. For rows that are worthless without the calling process, like a reservation.

        Transactions with the same `row` (any number) would wait for each other in the database, each occupying a
        connection; they take turns here instead.

        Raises STATE_UNAVAILABLE if the database cannot be reached or written, RowRefused, and whatever the
        transaction raises.
        """
        ...

    async def close(self) -> None:
        """Finishes submitted transactions, then disconnects."""
        ...


def insert_new(connection: Connection, table: Table) -> Insert:
    """An INSERT that does nothing if the row exists; `rowcount` is then 0."""
    if connection.dialect.name == "postgresql":
        return postgresql.insert(table).on_conflict_do_nothing()
    return sqlite.insert(table).on_conflict_do_nothing()
