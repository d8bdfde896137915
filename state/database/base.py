"""One small interface over both databases: `await database.run(transaction)`.

A transaction is a plain function over a synchronous SQLAlchemy connection; repositories are such functions, written
once. `run` commits when it returns and rolls back when it raises. A submitted transaction runs to its end even if the
waiting task is cancelled, so a client that disconnects never leaves one half done.

    sqlite:///...       `sqlite.py`      one writer thread, several transactions in one commit
    postgresql://...    `postgres.py`    a pool of connections
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from sqlalchemy import BigInteger, ColumnElement, Connection, Insert, Table, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

T = TypeVar("T")

WAIT_S = 4.0
"""How long a transaction waits for a lock or a connection: clients get their 503 within 5 s."""

PATIENT_S = 60.0
"""The same for work that no client waits for."""


class RowRefused(Exception):
    """A constraint refused a row: it exists already, or refers to nothing.

    Carries no message: the database's own quotes the row, which may hold a secret.
    """


class Database(Protocol):
    """Where transactions run."""

    async def run(
        self,
        transaction: Callable[[Connection], T],
        *,
        durable: bool = True,
        row: int | None = None,
        patient: bool = False,
    ) -> T:
        """Runs `transaction` and returns its result after the commit.

        With `durable=False` the answer does not wait for the disk: other transactions see the result, but a power
        failure can lose it. For rows that are worthless without the calling process, like a reservation.

        Transactions with the same `row` (any number) would wait for each other in the database, each occupying a
        connection; they take turns here instead.

        With `patient` a statement may take PATIENT_S instead of WAIT_S, and no request waits for its connection.

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


class _NowS(FunctionElement[int]):
    type = BigInteger()
    inherit_cache = True
    per_s = 1


class _NowMs(_NowS):
    inherit_cache = True
    per_s = 1000


@compiles(_NowS, "sqlite")
def _now_of_sqlite(element: _NowS, *_: Any, **__: Any) -> str:
    # 2440587.5 is the Julian day of 1970.
    return f"CAST((julianday('now') - 2440587.5) * {86_400 * element.per_s} AS INTEGER)"


@compiles(_NowS, "postgresql")
def _now_of_postgresql(element: _NowS, *_: Any, **__: Any) -> str:
    # Of the statement: that of the transaction would be old after a wait, and the clock's own would use no index.
    return f"CAST(floor(EXTRACT(EPOCH FROM statement_timestamp()) * {element.per_s}) AS BIGINT)"


NOW_S: ColumnElement[int] = _NowS()
NOW_MS: ColumnElement[int] = _NowMs()
"""The database's time in a statement, since 1970. Leases are written and compared by it, never by a process's own
clock: nodes may disagree by an hour."""


def now_s(connection: Connection) -> int:
    """The database's time, in whole seconds since 1970."""
    return connection.execute(select(NOW_S)).scalar_one()
