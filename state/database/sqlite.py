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
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TypeVar, cast

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DataError, IntegrityError, SQLAlchemyError
from sqlalchemy.pool import StaticPool

from contract.errors import STATE_UNAVAILABLE
from state.database.base import WAIT_S, RowRefused

T = TypeVar("T")
log = logging.getLogger(f"parlance.{__name__}")

MAX_GROUP = 256
"""The most transactions in one commit, so that the first of a long queue does not wait for all of it."""

WAL_FIXED = (3, 51, 3)
WAL_BACKPORTS = {(3, 44): 6, (3, 50): 7}


def journal_mode(version: tuple[int, int, int]) -> str:
    """The journal mode that is safe with this version of SQLite.

    From 3.7.0 to 3.51.2 a WAL can be corrupted if one connection writes while another checkpoints, and the command line
    writes beside the server. The fix was backported to 3.44.6 and 3.50.7.
    """
    major, minor, patch = version
    if version >= WAL_FIXED or patch >= WAL_BACKPORTS.get((major, minor), 1 << 30):
        return "WAL"
    return "PERSIST"


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
        while len(group) < MAX_GROUP and group[-1] is not None:
            try:
                group.append(self.jobs.get_nowait())
            except Empty:
                break
        return group

    def waiting(self) -> list[_Transaction | None]:
        """Everything queued, without blocking."""
        jobs: list[_Transaction | None] = []
        while not self.jobs.empty():
            jobs.append(self.jobs.get_nowait())
        return jobs

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
        self._engine = _engine(path, wait_s)
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
        row: int | None = None,
        patient: bool = False,
    ) -> T:
        """See `Database.run`. All transactions take turns in one thread, so `row` and `patient` have no effect."""
        if self._closed:
            raise STATE_UNAVAILABLE()
        job = _Transaction(transaction, self._inbox.loop.create_future(), durable)
        self._inbox.jobs.put(job)
        return cast(T, await job.done)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._inbox.jobs.put(None)
        await asyncio.to_thread(self._writer.join)

    def _write(self) -> None:
        try:
            while True:
                group = self._inbox.next_group()
                jobs = [job for job in group if job is not None]
                if jobs and not self._commit_together(jobs):
                    # Jobs queued behind a locked or broken database have waited long enough.
                    late = self._inbox.waiting()
                    group += late
                    jobs += [_refused(job) for job in late if job is not None]
                self._inbox.deliver(jobs)
                if None in group:
                    break
        finally:
            self._engine.dispose()

    def _commit_together(self, jobs: list[_Transaction]) -> bool:
        """Runs the jobs in one transaction. Returns False if none of them was recorded."""
        try:
            with self._engine.connect() as connection:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
                for job in jobs:
                    _run(connection, job, is_alone=len(jobs) == 1)
                    if self._healthy and not job.durable:
                        self._inbox.deliver([job])
                connection.commit()
            self._healthy = True
            return True
        except Exception as error:
            # Of any kind: if this thread ended, every waiter would wait for ever.
            self._healthy = False
            log.error("the database failed to commit %d transactions: %s", len(jobs), type(error).__name__)
            for job in jobs:
                _refused(job)
            return False


def _run(connection: Connection, job: _Transaction, is_alone: bool) -> None:
    """Runs a job in a savepoint of its own, and without where there is nobody whose work it could take along."""
    raw = cast(sqlite3.Connection, connection.connection.dbapi_connection)
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
    if isinstance(error, (IntegrityError, DataError)):
        return RowRefused()
    if isinstance(error, SQLAlchemyError):
        log.error("a transaction of the database failed: %s", type(error).__name__)
        return STATE_UNAVAILABLE()
    return error


def _refused(job: _Transaction) -> _Transaction:
    job.result, job.error = None, STATE_UNAVAILABLE()
    return job


def _engine(path: str, wait_s: float) -> Engine:
    engine = create_engine(
        f"sqlite:///{path}",
        poolclass=StaticPool,
        hide_parameters=True,
        # Keeps Python from beginning transactions by itself: BEGIN IMMEDIATE is issued here.
        connect_args={"timeout": wait_s, "isolation_level": None, "check_same_thread": False},
    )

    @event.listens_for(engine, "connect")
    def configure(raw: sqlite3.Connection, _record: object) -> None:
        # Not NORMAL: it can lose an acknowledged commit in a power failure.
        raw.execute(f"PRAGMA journal_mode = {journal_mode(sqlite3.sqlite_version_info)}")
        raw.execute("PRAGMA synchronous = FULL")
        raw.execute("PRAGMA foreign_keys = ON")

    return engine
