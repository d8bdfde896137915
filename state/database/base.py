"""One small interface over both databases: `await database.run(transaction)`.

A transaction is a plain function over a synchronous SQLAlchemy connection; repositories are such functions, written
once. `run` commits when it returns and rolls back when it raises. A submitted transaction runs to its end even if the
waiting task is cancelled, so a client that disconnects never leaves one half done.

    sqlite:///...       `sqlite.py`      one writer thread, several transactions in one commit
    postgresql://...    `postgres.py`    a pool of connections
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Protocol, TypeVar

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Dialect,
    Insert,
    Integer,
    Table,
    Text,
    TypeDecorator,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

T = TypeVar("T")

WAIT_S = 4.0
"""Seconds for which a transaction waits for a lock or a connection: clients get their 503 within 5 s."""

PATIENT_S = 60.0
"""The same for work that no client waits for."""


# SQLite autoincrements only a column of exactly type INTEGER, and its INTEGER has 64 bits; PostgreSQL's has 32.
Number = BigInteger().with_variant(Integer(), "sqlite")


class NameSet(TypeDecorator[frozenset[str]]):
    """A set of names without white space, stored as one text; NULL stays None."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: frozenset[str] | None, dialect: Dialect) -> str | None:
        return None if value is None else " ".join(sorted(value))

    def process_result_value(self, value: Any | None, dialect: Dialect) -> frozenset[str] | None:
        return None if value is None else frozenset(value.split())


class Quantities(TypeDecorator[Mapping[str, int]]):
    """Whole numbers by unit, stored as a JSON object and written as its text; NULL stays None."""

    impl = Text
    cache_ok = True

    def process_result_value(self, value: Any | None, dialect: Dialect) -> Mapping[str, int] | None:
        return None if value is None else json.loads(value)


class RowRefused(Exception):
    """A constraint refused a row: it exists already, or refers to nothing.

    Carries no message: the database's own quotes the row, which may hold a secret.
    """


class Database(Protocol):
    """Database in which transactions run."""

    async def run(
        self,
        transaction: Callable[[Connection], T],
        *,
        durable: bool = True,
        row: Hashable | None = None,
        patient: bool = False,
    ) -> T:
        """Runs `transaction` and returns its result after the commit.

        With `durable=False` the answer does not wait for the disk: other transactions see the result, but a power
        failure can lose it. For rows that are worthless without the calling process, like a reservation.

        Transactions with the same `row` (any name of it) would wait for each other in the database, each occupying a
        connection; they take turns here instead.

        With `patient` a statement may take PATIENT_S instead of WAIT_S, and no request waits for its connection.

        Raises STATE_UNAVAILABLE if the database cannot be reached or written, RowRefused, and whatever the
        transaction raises.
        """

    async def close(self) -> None:
        """Finishes submitted transactions, then disconnects."""


INSERTS: Mapping[str, Callable[[Table], postgresql.Insert | sqlite.Insert]] = {
    "postgresql": postgresql.insert,
    "sqlite": sqlite.insert,
}
"""Function that makes an INSERT which may meet a row, by dialect."""


def insert_new(connection: Connection, table: Table) -> Insert:
    """An INSERT that does nothing if the row exists; `rowcount` is then 0."""
    return INSERTS[connection.dialect.name](table).on_conflict_do_nothing()


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
    return connection.scalars(select(NOW_S)).one()


def now_ms(connection: Connection) -> int:
    """The database's time, in milliseconds since 1970."""
    return connection.scalars(select(NOW_MS)).one()


class Clock:
    """Seconds since 1970, as the database last said and this machine has counted since. Call it.

    The clock that this machine shows may be wrong, and may be set while we run; neither changes anything here.
    """

    def __init__(self, said_s: float, at_s: float) -> None:
        self._difference_s = said_s - at_s

    @classmethod
    async def by(cls, database: Database) -> Clock:
        """A clock that goes by `database`. Raises STATE_UNAVAILABLE."""
        return cls(await database.run(now_ms) / 1000, _counted_s())

    async def adjust(self, database: Database) -> None:
        """Asks again. Raises STATE_UNAVAILABLE."""
        self._difference_s = await database.run(now_ms) / 1000 - _counted_s()

    def __call__(self) -> float:
        return _counted_s() + self._difference_s


def _counted_s() -> float:
    # Not monotonic(), which stands still while a machine sleeps.
    return time.clock_gettime(time.CLOCK_BOOTTIME)
