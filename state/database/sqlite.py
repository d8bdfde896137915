"""SQLite behind one writer thread with group commit.

All queued transactions share one `BEGIN IMMEDIATE .. COMMIT`, each in a savepoint of its own: what fails rolls back
alone, and hundreds share the cost of one fsync. Callers get their result after the commit; those that did not ask for
durability get it as soon as the row is written, unless the last commit failed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar, cast

from sqlalchemy import ClauseElement, Connection, Dialect, Executable, event
from sqlalchemy.exc import DataError, IntegrityError, SQLAlchemyError

from contract.errors import STATE_UNAVAILABLE, ApiError
from state.blobs.folder import sync_folder
from state.database.base import WAIT_S, RowRefused
from state.database.driver import driver, open_file

T = TypeVar("T")
log = logging.getLogger(f"parlance.{__name__}")

MAX_GROUP = 256
"""The most transactions in one commit, so that the first of a long queue does not wait for all of it."""


@dataclass(slots=True, eq=False)
class _Transaction:
    transaction: Callable[[Connection], object]
    done: asyncio.Future[object]
    durable: bool
    result: object = None
    error: BaseException | None = None

    def deliver(self) -> None:
        if self.done.done():
            return
        if self.error is not None:
            self.done.set_exception(self.error)
        else:
            self.done.set_result(self.result)


@dataclass(slots=True)
class _Inbox:
    """Queued jobs, and the event loop that awaits their results."""

    loop: asyncio.AbstractEventLoop
    jobs: SimpleQueue[_Transaction | None] = field(default_factory=SimpleQueue)

    def next_group(self) -> list[_Transaction | None]:
        """Blocks for the first job, then takes what else is queued. None closes."""
        group = [self.jobs.get()]
        while len(group) < MAX_GROUP and group[-1] is not None and not self.jobs.empty():  # nobody else takes any
            group.append(self.jobs.get_nowait())
        return group

    def waiting(self) -> list[_Transaction | None]:
        """Everything queued, without blocking."""
        return [self.jobs.get_nowait() for _ in range(self.jobs.qsize())]

    def deliver(self, jobs: list[_Transaction]) -> None:
        def wake() -> None:
            for job in jobs:
                job.deliver()

        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(wake)


class SqliteDatabase:
    """A database file. Belongs to the event loop that opened it; `wait_s` is the longest wait for another process."""

    def __init__(self, path: str, wait_s: float = WAIT_S) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        with suppress(PermissionError):  # of another user, who lets this one write
            Path(path).chmod(0o600)  # also a copy
        self._engine = open_file(path, wait_s)
        # SQLite syncs the name of a new journal, and takes no notice if that fails.
        event.listen(self._engine, "connect", lambda *_: sync_folder(Path(path).parent))
        self._inbox = _Inbox(asyncio.get_running_loop())
        self._closed = False
        self._healthy = True
        self._writer = Thread(target=self._write, name="sqlite-writer", daemon=True)
        self._writer.start()

    async def run(
        self,
        transaction: Callable[[Connection], T],
        *,
        durable: bool = True,
        row: Hashable | None = None,
        patient: bool = False,
    ) -> T:
        """See `Database.run`. All transactions take turns in one thread, so `row` and `patient` have no effect."""
        if self._closed:
            raise STATE_UNAVAILABLE()
        job = _Transaction(transaction, self._inbox.loop.create_future(), durable)
        self._inbox.jobs.put(job)
        return cast(T, await job.done)

    @cached_property
    def _connection(self) -> Connection:
        """The writer's. It stays open: taking one from the engine for each group costs as much as a statement."""
        connection = _DirectConnection(self._engine)
        connection.begin()  # as SQLAlchemy sees it, for good: what is begun and committed are the groups
        return connection

    async def close(self) -> None:
        self._closed = True
        self._inbox.jobs.put(None)
        await asyncio.to_thread(self._writer.join)

    def _write(self) -> None:
        group: list[_Transaction | None] = []
        try:
            while None not in group:
                group = self._inbox.next_group()
                jobs = [job for job in group if job is not None]
                if jobs and not self._commit_together(jobs):
                    # Jobs queued behind a locked or broken database have waited long enough.
                    late = self._inbox.waiting()
                    group += late
                    jobs += [_refused(job) for job in late if job is not None]
                self._inbox.deliver(jobs)
        finally:
            self._give_up_connection()
            self._engine.dispose()

    def _commit_together(self, jobs: list[_Transaction]) -> bool:
        """Runs the jobs in one transaction. Returns False if none of them was recorded."""
        try:
            raw = _raw(self._connection)
            raw.execute("BEGIN IMMEDIATE")
            for job in jobs:
                _run(self._connection, job, is_alone=len(jobs) == 1)
                if self._healthy and not job.durable:
                    self._inbox.deliver([job])
            raw.commit()  # does nothing where the only one has failed
            self._healthy = True
            if any(isinstance(job.error, ApiError) and job.error.fault is STATE_UNAVAILABLE for job in jobs):
                self._give_up_connection()  # such as one that SQLite opened to read only, as it could not do otherwise
            return True
        except Exception as error:
            # Of any kind: if this thread ended, every waiter would wait for ever.
            self._healthy = False
            self._give_up_connection()
            log.error("the database failed to commit %d transactions: %s", len(jobs), type(error).__name__)
            for job in jobs:
                _refused(job)
            return False

    def _give_up_connection(self) -> None:
        """Rolls back what it has begun, and closes the file; the next group opens another."""
        with suppress(Exception):  # KeyError where there is none
            self.__dict__.pop("_connection").invalidate()


class _DirectConnection(Connection):
    """Runs a statement with the option `by_driver` itself: SQLAlchemy's way to it costs more than the statement.

    Parameters go to the driver as they are. The result has `rowcount` and rows, and of a list of parameters all rows.
    """

    def execute(self, statement: Executable, parameters: Any = None, *, execution_options: Any = None) -> Any:
        if "by_driver" not in statement.get_execution_options():
            return super().execute(statement, parameters, execution_options=execution_options)
        if isinstance(parameters, list):
            return [row for each in parameters for row in self._run(statement, each)]
        return self._run(statement, parameters)

    def _run(self, statement: Any, parameters: Mapping[str, Any]) -> sqlite3.Cursor:
        text, names, constants = _compiled(statement, self.dialect, tuple(parameters))
        values = {**constants, **parameters}
        return _raw(self).execute(text, [values[name] for name in names])


@lru_cache(maxsize=64)
def _compiled(
    statement: ClauseElement, dialect: Dialect, names: tuple[str, ...]
) -> tuple[str, Sequence[str], Mapping[str, Any]]:
    compiled: Any = statement.compile(dialect=dialect, column_keys=names)
    return compiled.string, compiled.positiontup, compiled.params


def _raw(connection: Connection) -> sqlite3.Connection:
    return cast(sqlite3.Connection, connection.connection.dbapi_connection)


def _run(connection: Connection, job: _Transaction, is_alone: bool) -> None:
    """Runs a job in a savepoint of its own, and without one where no other job could be rolled back with it."""
    raw = _raw(connection)
    if not is_alone:
        raw.execute("SAVEPOINT job")
    try:
        job.result = job.transaction(connection)
    except Exception as error:
        # A full disk or an I/O error may have ended the whole transaction; then this raises, and the group fails.
        raw.execute("ROLLBACK" if is_alone else "ROLLBACK TO job")
        job.error = _public(error)
    if not is_alone:
        raw.execute("RELEASE job")


def _public(error: Exception) -> Exception:
    """`error` as the caller sees it: without a text that quotes the row."""
    if isinstance(error, (IntegrityError, DataError, driver.IntegrityError, driver.DataError)):
        return RowRefused()
    if isinstance(error, (SQLAlchemyError, driver.Error)):
        log.error("a transaction of the database failed: %s", type(error).__name__)
        return STATE_UNAVAILABLE()
    return error


def _refused(job: _Transaction) -> _Transaction:
    job.result, job.error = None, STATE_UNAVAILABLE()
    return job
