"""SQLite and PostgreSQL that stop, are slow, have no room or serve several processes, and what is durable."""

import asyncio
import shutil
import threading
import time
from argparse import Namespace
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, event, text

from contract.errors import ApiError
from state.billing import audit
from state.billing.ledger import Ledger
from state.cli.run import _answer
from state.database.base import Database, RowRefused
from state.database.driver import driver, journal_mode
from state.database.open import connect, open_database
from state.database.sqlite import SqliteDatabase
from state.database.tables import metadata
from state.facts import revise
from tests.state.books import fault_of, make_caller, opened, reserve
from tests.waiting import settled, until

INSERT = text("INSERT INTO t (n) VALUES (:n)")


@pytest.fixture
async def numbers(tmp_path: Path) -> AsyncIterator[SqliteDatabase]:
    database = SqliteDatabase(str(tmp_path / "numbers.db"), wait_s=0.2)
    await database.run(lambda connection: connection.exec_driver_sql("CREATE TABLE t (n INTEGER UNIQUE)") and None)
    yield database
    await database.close()


def connection_of(connection: Connection) -> Any:
    """The driver's connection, which the writer keeps until a commit fails."""
    return connection.connection.dbapi_connection


def insert(number: int):
    def transaction(connection: Connection) -> int:
        connection.execute(INSERT, {"n": number})
        if number < 0:
            raise ZeroDivisionError
        return number

    return transaction


async def reconnect(database: SqliteDatabase) -> None:
    """Fails in a way after which no connection is trusted."""
    assert await fault_of(database.run(lambda c: c.exec_driver_sql("SELECT n FROM nowhere"))) == "STATE_UNAVAILABLE"


def rows(path: Path) -> list[int]:
    with driver.connect(path) as other:
        found = [row[0] for row in other.execute("SELECT n FROM t ORDER BY n")]
    other.close()
    return found


def test_wal_only_where_it_is_safe() -> None:
    broken = {(3, 40, 1), (3, 44, 5), (3, 45, 6), (3, 50, 6), (3, 51, 2)}
    for version in broken | {(3, 44, 6), (3, 50, 7), (3, 51, 3), (3, 52, 0), (4, 0, 0)}:
        assert journal_mode(version) == ("PERSIST" if version in broken else "WAL"), version


async def test_the_connection_is_durable_and_strict(numbers: SqliteDatabase) -> None:
    def pragma(name: str):
        return lambda connection: connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()

    assert await numbers.run(pragma("synchronous")) == 2
    assert await numbers.run(pragma("foreign_keys")) == 1
    assert (await numbers.run(pragma("journal_mode"))).upper() == journal_mode(driver.sqlite_version_info)


async def test_only_what_is_worth_nothing_without_its_process_does_not_wait_for_the_disk(postgres_url: str) -> None:
    def waits(connection: Connection) -> Any:
        # The locks of a machine that vanished must not stay for hours.
        assert connection.exec_driver_sql("SHOW idle_in_transaction_session_timeout").scalar_one() in ("10s", "10min")
        return connection.exec_driver_sql("SHOW synchronous_commit").scalar_one()

    async with opened(postgres_url, 1) as (database,):
        ways: list[dict[str, Any]] = [{}, {"row": 1}, {"patient": True}, {"durable": False}]
        assert [await database.run(waits, **way) for way in ways] == ["on", "on", "on", "off"]


async def test_every_table_of_the_schema_is_strict_and_the_file_private(tmp_path: Path) -> None:
    database = await open_database(f"sqlite:///{tmp_path / 'p.db'}")
    tables = await database.run(lambda c: c.exec_driver_sql("PRAGMA table_list").mappings().all())
    await database.close()
    ours = [t for t in tables if t["schema"] == "main" and t["name"] not in ("sqlite_schema", "alembic_version")]
    assert {t["name"] for t in ours} == set(metadata.tables)
    assert all(t["strict"] for t in ours)
    assert (tmp_path / "p.db").stat().st_mode & 0o777 == 0o600


async def test_transactions_that_wait_together_share_a_commit(numbers: SqliteDatabase, tmp_path: Path) -> None:
    commits: list[int] = []
    writer = await numbers.run(connection_of)
    writer.set_trace_callback(lambda statement: commits.append(1) if statement == "COMMIT" else None)
    await asyncio.gather(*(numbers.run(insert(n)) for n in range(500)))
    assert rows(tmp_path / "numbers.db") == list(range(500))
    assert 1 <= len(commits) <= 50


async def test_one_that_fails_leaves_nothing_and_does_not_take_the_others_along(
    numbers: SqliteDatabase, tmp_path: Path
) -> None:
    for number, is_durable in ((-1, True), (-2, False)):
        with pytest.raises(ZeroDivisionError):
            await numbers.run(insert(number), durable=is_durable)
    assert rows(tmp_path / "numbers.db") == []
    results = await asyncio.gather(*(numbers.run(insert(n)) for n in (1, -2, 3, 1, 4)), return_exceptions=True)
    assert results[0] == 1
    assert isinstance(results[1], ZeroDivisionError)
    assert isinstance(results[3], RowRefused)
    assert (results[2], results[4]) == (3, 4)
    assert rows(tmp_path / "numbers.db") == [1, 3, 4]


async def test_a_cancelled_waiter_does_not_stop_its_transaction(numbers: SqliteDatabase, tmp_path: Path) -> None:
    waiting = asyncio.create_task(numbers.run(insert(1)))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await numbers.run(insert(2))
    assert rows(tmp_path / "numbers.db") == [1, 2]


async def test_closing_finishes_what_was_handed_over_and_no_more(numbers: SqliteDatabase, tmp_path: Path) -> None:
    waiting = [asyncio.create_task(numbers.run(insert(n))) for n in range(20)]
    await asyncio.sleep(0)
    await numbers.close()
    assert await asyncio.gather(*waiting) == list(range(20))
    with pytest.raises(ApiError):
        await numbers.run(insert(99))
    assert rows(tmp_path / "numbers.db") == list(range(20))


async def test_a_locked_file_refuses_everybody_soon_and_recovers(numbers: SqliteDatabase, tmp_path: Path) -> None:
    begun, are_queued = list[str](), threading.Event()

    def begins(statement: str) -> None:
        begun.append(statement)
        are_queued.wait()

    (await numbers.run(connection_of)).set_trace_callback(begins)
    other = driver.connect(tmp_path / "numbers.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    first = asyncio.create_task(numbers.run(insert(1)))
    await until(lambda: begun)
    late = [asyncio.create_task(numbers.run(insert(n), durable=False)) for n in range(2, 400)]
    await settled()
    are_queued.set()
    refused = await asyncio.gather(first, *late, return_exceptions=True)
    # One wait for all, not one for each group in the queue.
    assert begun == ["BEGIN IMMEDIATE"]
    assert {getattr(error, "fault", None) and error.fault.name for error in refused} == {"STATE_UNAVAILABLE"}
    other.execute("COMMIT")
    other.close()
    assert await numbers.run(insert(7)) == 7
    assert rows(tmp_path / "numbers.db") == [7]


async def test_a_full_disk_refuses_the_group_and_recovers(numbers: SqliteDatabase, tmp_path: Path) -> None:
    await numbers.run(lambda c: c.exec_driver_sql("CREATE TABLE big (b BLOB)") and None)
    pages = await numbers.run(lambda c: c.exec_driver_sql("PRAGMA page_count").scalar_one())
    await numbers.run(lambda c: c.exec_driver_sql(f"PRAGMA max_page_count = {pages + 1}") and None)

    def fill(connection: Connection) -> None:
        connection.exec_driver_sql("INSERT INTO big VALUES (zeroblob(1000000))")

    results = await asyncio.gather(numbers.run(insert(1)), numbers.run(fill), return_exceptions=True)
    assert isinstance(results[1], ApiError)
    assert results[1].fault.name == "STATE_UNAVAILABLE"
    await numbers.run(lambda c: c.exec_driver_sql("PRAGMA max_page_count = 100000") and None)
    await numbers.run(insert(2))
    # What was acknowledged is there, what was refused is not.
    assert rows(tmp_path / "numbers.db") == ([1, 2] if results[0] == 1 else [2])


@pytest.mark.parametrize(("mode", "beside"), [("PERSIST", "-journal"), ("WAL", "-wal")])
def test_a_copy_with_its_journal_is_whole_whenever_the_server_died(tmp_path: Path, mode: str, beside: str) -> None:
    writer = driver.connect(tmp_path / "numbers.db", isolation_level=None)
    for statement in (f"PRAGMA journal_mode = {mode}", "CREATE TABLE t (n INTEGER UNIQUE)", "INSERT INTO t VALUES (0)"):
        writer.execute(statement)
    # Pages go to the file before the commit where they do not fit into the cache.
    for statement in ("PRAGMA cache_size = 1", "BEGIN IMMEDIATE", "UPDATE t SET n = -1"):
        writer.execute(statement)
    writer.executemany("INSERT INTO t VALUES (?)", ((number,) for number in range(10_000)))
    for name in ("numbers.db", f"numbers.db{beside}"):
        shutil.copy(tmp_path / name, tmp_path / name.replace("numbers", "copy"))
    writer.close()
    assert rows(tmp_path / "copy.db") == [0]


async def test_an_early_answer_comes_before_the_commit_and_is_seen_by_the_next(numbers: SqliteDatabase) -> None:
    assert await numbers.run(insert(5), durable=False) == 5
    with pytest.raises(RowRefused):
        await numbers.run(insert(5), durable=False)


async def test_after_a_failed_commit_nobody_gets_an_early_answer(numbers: SqliteDatabase, tmp_path: Path) -> None:
    is_broken = True

    @event.listens_for(numbers._engine, "connect")
    def refuse(raw: Any, _record: object) -> None:
        answer = {True: driver.SQLITE_DENY, False: driver.SQLITE_OK}
        raw.set_authorizer(lambda _, what, *__: answer[is_broken and what == "COMMIT"])

    await reconnect(numbers)
    # Whether the first of them has its answer before its commit fails is a race.
    await asyncio.gather(numbers.run(insert(1), durable=False), return_exceptions=True)
    for number in (2, 3):
        assert await fault_of(numbers.run(insert(number), durable=False)) == "STATE_UNAVAILABLE"
    is_broken = False
    assert await numbers.run(insert(4), durable=False) == 4
    await numbers.run(insert(5))
    assert rows(tmp_path / "numbers.db") == [4, 5]


async def test_a_connection_that_can_only_read_is_not_kept(numbers: SqliteDatabase, tmp_path: Path) -> None:
    """SQLite opens a file to read where it cannot open it to write: where the process had no descriptor left, once."""

    @event.listens_for(numbers._engine, "do_connect", once=True)
    def read_only(*_: object) -> Any:
        return driver.connect(f"file:{tmp_path / 'numbers.db'}?mode=ro", uri=True, check_same_thread=False)

    await reconnect(numbers)
    assert await fault_of(numbers.run(insert(1))) == "STATE_UNAVAILABLE"
    assert await numbers.run(insert(2)) == 2


def sleep(connection: Connection) -> None:
    """Takes longer than clients wait."""
    if connection.dialect.name == "sqlite":
        time.sleep(2)
    else:
        connection.exec_driver_sql("SELECT pg_sleep(2)")


async def test_what_reads_takes_its_time_and_keeps_no_server_from_writing(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    caller, begun, loop = await make_caller(database, 1_000), asyncio.Event(), asyncio.get_running_loop()
    server, reader = connect(database_url, 1.0), connect(database_url, 1.0)

    def reading(connection: Connection, *_: object) -> str:
        assert audit.faults(connection) == []
        loop.call_soon_threadsafe(begun.set)
        sleep(connection)
        return "read"

    answer = asyncio.create_task(_answer(reader, Namespace(reading=reading), "check", tmp_path))
    await begun.wait()
    await reserve(Ledger(server), caller, 9)
    assert await answer == "read"
    for each in (server, reader):
        await each.close()


async def test_an_act_takes_its_time(database: Database, database_url: str, tmp_path: Path) -> None:
    own = connect(database_url, 1.0)
    options = Namespace(act=lambda connection, *_: sleep(connection) or "set")
    assert await _answer(own, options, "budget set", tmp_path) == "set"
    await own.close()


def one_more(text: str | None) -> str:
    """One where the fact is not there yet."""
    return str(1 if text is None else int(text) + 1)


async def test_revisions_of_many_at_once_are_all_there(database: Database, database_url: str) -> None:
    others = [connect(database_url) for _ in range(3)]
    await asyncio.gather(*(revise(one, {"b": one_more, "a": one_more}) for one in [database, *others] * 5))
    assert await revise(database, {"a": one_more}) == {"a": "21"}
    assert await revise(database, {"b": one_more}) == {"b": "21"}
    for one in others:
        await one.close()
