"""Clocks that stand, databases that fail and bytes that cannot be deleted, as the tests of this folder want them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from hypothesis import strategies as st
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import IntegrityError
from sqlalchemy.pool import StaticPool

from contract.errors import STATE_UNAVAILABLE
from state.billing import upkeep
from state.blobs.base import Blobs
from state.database.base import Database, RowRefused, T
from state.database.driver import open_file
from state.database.open import connect
from state.database.tables import metadata
from tests.waiting import VirtualLoop


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


@contextmanager
def statements() -> Iterator[list[tuple[str, Any]]]:
    """What is asked of databases within the block, each with its parameters."""
    seen: list[tuple[str, Any]] = []

    def note(_c: object, _cursor: object, text: str, parameters: Any, *_rest: object) -> None:
        seen.append((text, parameters))

    event.listen(Engine, "before_cursor_execute", note)
    yield seen
    event.remove(Engine, "before_cursor_execute", note)


class LateDatabase(WatchedDatabase):
    """A database whose marks wait until they may be written."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.is_asked, self.may_write = asyncio.Event(), asyncio.Event()

    async def run(self, transaction: Callable[[Connection], T], **how: Any) -> T:
        if getattr(transaction, "func", None) is upkeep.mark:
            self.is_asked.set()
            await self.may_write.wait()
        return await super().run(transaction, **how)


class ForgetfulDatabase(WatchedDatabase):
    """A database that loses the answer to one transaction for each of `names`, after its commit."""

    def __init__(self, database: Database, *names: str) -> None:
        super().__init__(database)
        self.names = list(names)

    async def run(self, transaction: Callable[[Connection], T], **how: Any) -> T:
        result = await super().run(transaction, **how)
        function = getattr(transaction, "func", transaction).__qualname__
        for name in [name for name in self.names if name in function][:1]:
            self.names.remove(name)
            raise STATE_UNAVAILABLE()
        return result


class InlineDatabase:
    """Runs transactions at once, and answers a little later; a task that is cancelled meanwhile undoes nothing."""

    def __init__(self) -> None:
        self.is_down = False
        self._engine = create_engine("sqlite://", poolclass=StaticPool)
        metadata.create_all(self._engine)

    async def run(self, transaction: Callable[[Connection], T], **_: Any) -> T:
        if self.is_down:
            raise STATE_UNAVAILABLE()
        try:
            with self._engine.begin() as connection:
                result = transaction(connection)
        except IntegrityError:
            raise RowRefused from None
        await asyncio.sleep(0.001)
        return result

    async def close(self) -> None:
        self._engine.dispose()


class LoopClock:
    """The clock of a database whose time is the loop's."""

    def __call__(self) -> float:
        return asyncio.get_running_loop().time()

    async def adjust(self, database: Any) -> None:
        """The database has no other time."""


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
            await time.database.run(time.replace_julianday)
        await time.set(now_s)
        return time

    def __call__(self) -> float:
        return self.now_s

    async def adjust(self, database: Database) -> None:
        """Does nothing: this is the database's time."""

    def replace_julianday(self, connection: Connection) -> None:
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


BAD = ("fails", "loses its answer", "is undone after its answer")
FATES = st.sampled_from(("fine", "fine", "fine", "waits", "has not begun", *BAD))
"""What becomes of the first transaction that a step leads to. Only one that is not durable can be undone."""

NUMBERS = st.just(-1) | st.integers(-4, 3)
"""One of those that are there, most often the last one: what happens to the same thing in a row tells most."""


@dataclass(eq=False)
class Call:
    """A transaction that waits for the database."""

    process: Replica
    transaction: Callable[[Connection], Any]
    durable: bool
    answer: asyncio.Future[Any]
    waits: bool = False


class Replica:
    """The connection of one process to the database of a machine.

    Attributes:
        calls: those of all processes.
        is_sure: everything it asked for was done.
        is_misled: it was told of something that was not committed.
    """

    def __init__(self, calls: list[Call]) -> None:
        self.calls = calls
        self.is_sure, self.is_misled, self.is_dead = True, False, False

    async def run(self, transaction: Any, *, durable: bool = True, **_: Any) -> Any:
        answer = asyncio.get_running_loop().create_future()
        if not self.is_dead:
            self.calls.append(Call(self, transaction, durable, answer))
        return await answer

    async def close(self) -> None:
        """Ends nothing: the machine closes the database."""


@cache
def _schema() -> list[str]:
    """The statements that make all tables: SQLAlchemy takes longer over them than a history does."""
    with open_file(":memory:", 1).connect() as connection:
        metadata.create_all(connection)
        made = connection.exec_driver_sql(
            "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'"
        )
        return list(made.scalars())


class Interleaved:
    """Processes over one database in memory, in virtual time.

    Nothing runs in parallel: every transaction waits in a list, and a test says which is next, what becomes of it, and
    how far the tasks get meanwhile.

    Attributes:
        is_new: the database may have changed since it was looked at.
        is_calm: things are slow, but nothing fails.
        is_hasty: the next thing comes without waiting for what is under way.
    """

    def __init__(self, now_s: int) -> None:
        super().__init__()
        self.loop = VirtualLoop()
        # What a dead process was at waits for ever, and would be collected in its midst.
        self.unfinished: set[asyncio.Task[Any]] = set()
        self.loop.set_task_factory(self._task)
        self.engine = open_file(":memory:", 1)
        self.connection = self.engine.connect()
        for statement in _schema():
            self.connection.exec_driver_sql(statement)
        self.time = VirtualTime(None, now_s)  # type: ignore[arg-type]
        self.time.replace_julianday(self.connection)
        self.calls: list[Call] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self.is_new = True
        self.is_calm = self.is_hasty = False

    def answer(self, call: Call, fate: str) -> None:
        """The transaction runs or does not, and its process is told so or not."""
        self.calls.remove(call)
        result, error = None, None
        fate = "fine" if self.is_calm else fate
        if fate == "fails":
            error = STATE_UNAVAILABLE()
        else:
            self.is_new = True
            savepoint = self.connection.begin_nested()
            try:
                result = call.transaction(self.connection)
            except Exception as refused:
                error = refused
            is_undone = fate == BAD[2] and not call.durable
            call.process.is_misled |= is_undone
            (savepoint.rollback if error or is_undone else savepoint.commit)()
            if fate == BAD[1]:
                error = STATE_UNAVAILABLE()
        call.process.is_sure &= fate not in BAD
        if call.answer.done() or call.process.is_dead:
            return
        if error:
            call.answer.set_exception(error)
        else:
            call.answer.set_result(result)

    def _task(self, loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        task = asyncio.Task(work, loop=loop, **options)
        self.unfinished.add(task)
        task.add_done_callback(self.unfinished.discard)
        return task

    def turn(self) -> None:
        """Every task that can go on does so once."""
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()

    def fate_of(self, call: Call) -> str:
        """What becomes of a transaction that no step has a fate for."""
        return "fine"

    def quiet(self, fate: str = "") -> None:
        """Goes on until everything waits: for time, or for a transaction that waits. The first one may have a fate."""
        if fate == "has not begun":
            return
        for _ in range(5000):
            self.turn()  # also for what time has brought
            while self.loop._ready:  # type: ignore[attr-defined]
                self.turn()
            calls = [call for call in self.calls if not call.waits]
            if not calls:
                return
            fate = fate or self.fate_of(calls[0])
            if fate == "waits" or (self.is_calm and fate in BAD):
                calls[0].waits = True
            else:
                self.answer(calls[0], fate)
            fate = ""
        raise AssertionError("it never ends")

    def spawn(self, work: Coroutine[Any, Any, Any], fate: str = "") -> asyncio.Task[Any]:
        task = self.loop.create_task(work)
        self.tasks.append(task)
        if self.is_hasty:
            self.turn()
        else:
            self.quiet(fate)
        return task

    def kill(self, process: Replica, still_run: int) -> None:
        """Ends a process between two steps; the database may still do the first things that it was asked for."""
        for call in [call for call in self.calls if call.process is process]:
            if still_run:
                self.answer(call, BAD[1])
                still_run -= 1
            else:
                self.calls.remove(call)
        process.is_dead = True

    def one_transaction(self, number: int, fate: str, turns: int) -> None:
        """One of those that wait is done before the others, and what waited for it goes on so far."""
        if self.calls and fate not in ("waits", "has not begun"):
            self.answer(self.calls[number % len(self.calls)], fate)
        for _ in range(turns):
            self.turn()

    def heal(self) -> None:
        for call in self.calls:
            call.waits = False
        self.quiet()

    def pass_time_until(self, done: Callable[[], bool]) -> None:
        for _ in range(100):
            self.quiet()
            if done():
                return
            self.loop.now_s += 1
        raise AssertionError("something waits for ever")

    def close(self) -> None:
        self.is_calm = False
        while tasks := asyncio.all_tasks(self.loop):
            for task in tasks:
                task.cancel()
            for call in list(self.calls):
                self.answer(call, "fails")
            self.turn()
        self.loop.close()
        self.connection.close()
        self.engine.dispose()
