"""PostgreSQL behind a pool of asyncpg connections."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import asyncpg
from sqlalchemy import URL, Connection, ExceptionContext, event
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from concurrency.background import start_task
from contract.errors import STATE_UNAVAILABLE
from state.database.base import PATIENT_S, WAIT_S, RowRefused

T = TypeVar("T")
log = logging.getLogger(f"parlance.{__name__}")

POOL_SIZE = 8
"""Connections of each of the two pools of a process that requests wait for."""

PATIENT_POOL_SIZE = 2

TOO_MANY_CONNECTIONS, READ_ONLY = "53300", "25006"
"""https://www.postgresql.org/docs/current/errcodes-appendix.html"""
RETRY_S = 0.1

SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
"""Values of `sslmode` in an address: https://www.postgresql.org/docs/current/libpq-ssl.html"""


class PostgresDatabase:
    """A database that several ingress replicas share. READ COMMITTED: every decision is one conditional update.

    Raises ValueError for an address that PostgreSQL does not know.
    """

    def __init__(self, address: URL, wait_s: float = WAIT_S, patient_s: float = PATIENT_S) -> None:
        mode = address.query.get("sslmode", "prefer")
        if mode not in SSL_MODES:
            raise ValueError(f"`sslmode` of the database address is one of {', '.join(SSL_MODES)}, not `{mode}`")
        # Whether a commit waits for the disk is set per connection; changing it each time would cost a round trip.
        self._engines = {
            True: _engine(address, wait_s, wait_s, "on", POOL_SIZE),
            False: _engine(address, wait_s, wait_s, "off", POOL_SIZE),
        }
        self._patient = _engine(address, wait_s, max(patient_s, wait_s), "on", PATIENT_POOL_SIZE)
        self._wait_s = wait_s
        # Weak: a lock lives as long as a task holds it or waits for it.
        self._turns: WeakValueDictionary[Hashable, asyncio.Lock] = WeakValueDictionary()
        self._running: set[asyncio.Task[Any]] = set()

    async def run(
        self,
        transaction: Callable[[Connection], T],
        *,
        durable: bool = True,
        row: Hashable | None = None,
        patient: bool = False,
    ) -> T:
        """See `Database.run`."""
        engine = self._patient if patient else self._engines[durable]
        return await asyncio.shield(start_task(self._take_turns(engine, transaction, row), self._running))

    async def close(self) -> None:
        if self._running:
            await asyncio.wait(self._running)
        for engine in (*self._engines.values(), self._patient):
            await engine.dispose()

    async def _take_turns(self, engine: AsyncEngine, transaction: Callable[[Connection], T], row: Hashable | None) -> T:
        if row is None:
            return await _run(engine, transaction, self._wait_s)
        turn = self._turns.setdefault(row, asyncio.Lock())
        try:
            async with asyncio.timeout(self._wait_s):
                await turn.acquire()
        except TimeoutError:
            raise STATE_UNAVAILABLE() from None
        try:
            return await _run(engine, transaction, self._wait_s)
        finally:
            turn.release()


async def _run(engine: AsyncEngine, transaction: Callable[[Connection], T], wait_s: float) -> T:
    """Runs it, and retries what has not begun.

    That is once on a fresh connection if the pooled one turned out dead, and for `wait_s` while PostgreSQL takes no
    more connections: replicas that come and go overlap.
    """
    end_s, was_dead = time.monotonic() + wait_s, False
    while True:
        finished = False
        try:
            async with engine.begin() as connection:
                result = await connection.run_sync(transaction)
                finished = True
            return result
        except (IntegrityError, DataError):
            raise RowRefused from None
        except (SQLAlchemyError, OSError, TimeoutError) as error:
            cause = getattr(error, "orig", None) or error
            is_full = getattr(cause, "sqlstate", None) == TOO_MANY_CONNECTIONS and time.monotonic() < end_s
            is_dead = isinstance(error, DBAPIError) and error.connection_invalidated and not was_dead
            if finished or not (is_full or is_dead):
                log.error("a transaction of the database failed: %s", type(cause.__cause__ or cause).__name__)
                raise STATE_UNAVAILABLE() from None
            was_dead |= is_dead
        if is_full:
            await asyncio.sleep(RETRY_S)


def _engine(address: URL, wait_s: float, statement_s: float, synchronous_commit: str, pool_size: int) -> AsyncEngine:
    # A machine that vanishes amid a transaction leaves its rows locked until the server notices, after hours by TCP.
    idle_ms = f"{10_000 * statement_s:.0f}"
    settings = {"synchronous_commit": synchronous_commit, "idle_in_transaction_session_timeout": idle_ms}
    creator = _opener(address, timeout=wait_s, command_timeout=statement_s, server_settings=settings)
    pool: dict[str, Any] = {"pool_size": pool_size, "max_overflow": 0, "pool_timeout": wait_s}
    engine = create_async_engine("postgresql+asyncpg://", async_creator=creator, hide_parameters=True, **pool)
    event.listen(engine.sync_engine, "handle_error", _drop_what_only_reads)
    return engine


def _drop_what_only_reads(error: ExceptionContext) -> None:
    """A connection to a standby, made while a primary was being replaced, counts as dead."""
    error.is_disconnect |= getattr(error.original_exception, "sqlstate", None) == READ_ONLY


def _opener(address: URL, **settings: Any) -> Callable[[], Awaitable[asyncpg.Connection]]:
    """Opens connections to `address`. Its parameters mean what they mean to libpq, and so to `psql`.

    SQLAlchemy would hand each of them to asyncpg by its name, and asyncpg reads `sslmode` out of an address only.
    """
    dsn = address.set(drivername="postgresql").render_as_string(hide_password=False)
    return lambda: asyncpg.connect(dsn, **settings)
