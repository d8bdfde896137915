import asyncio
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from contract.errors import ApiError
from state.database.base import RowRefused, open_database
from state.database.driver import driver, journal_mode
from state.database.sqlite import SqliteDatabase
from state.database.tables import metadata

INSERT = text("INSERT INTO t (n) VALUES (:n)")


@pytest.fixture
async def numbers(tmp_path: Path) -> AsyncIterator[SqliteDatabase]:
    database = SqliteDatabase(str(tmp_path / "numbers.db"), wait_s=0.2)
    await database.run(lambda connection: connection.exec_driver_sql("CREATE TABLE t (n INTEGER UNIQUE)") and None)
    yield database
    await database.close()


def insert(number: int):
    def transaction(connection: Connection) -> int:
        connection.execute(INSERT, {"n": number})
        if number < 0:
            raise ZeroDivisionError
        return number

    return transaction


def rows(path: Path) -> list[int]:
    with driver.connect(path) as other:
        found = [row[0] for row in other.execute("SELECT n FROM t ORDER BY n")]
    other.close()
    return found


@pytest.mark.parametrize(
    ("version", "mode"),
    [
        ((3, 40, 1), "PERSIST"),
        ((3, 44, 5), "PERSIST"),
        ((3, 44, 6), "WAL"),
        ((3, 45, 6), "PERSIST"),
        ((3, 50, 6), "PERSIST"),
        ((3, 50, 7), "WAL"),
        ((3, 51, 2), "PERSIST"),
        ((3, 51, 3), "WAL"),
        ((3, 52, 0), "WAL"),
        ((4, 0, 0), "WAL"),
    ],
)
def test_wal_only_where_it_is_safe(version: tuple[int, int, int], mode: str) -> None:
    assert journal_mode(version) == mode


async def test_the_connection_is_durable_and_strict(numbers: SqliteDatabase) -> None:
    def pragma(name: str):
        return lambda connection: connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()

    assert await numbers.run(pragma("synchronous")) == 2
    assert await numbers.run(pragma("foreign_keys")) == 1
    assert (await numbers.run(pragma("journal_mode"))).upper() == journal_mode(driver.sqlite_version_info)


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
    numbers._engine.pool.connect().dbapi_connection.set_trace_callback(
        lambda statement: commits.append(1) if statement == "COMMIT" else None
    )
    await asyncio.gather(*(numbers.run(insert(n)) for n in range(500)))
    assert rows(tmp_path / "numbers.db") == list(range(500))
    assert 1 <= len(commits) <= 50


async def test_one_that_fails_does_not_take_the_others_along(numbers: SqliteDatabase, tmp_path: Path) -> None:
    results = await asyncio.gather(*(numbers.run(insert(n)) for n in (1, -2, 3, 1, 4)), return_exceptions=True)
    assert results[0] == 1
    assert isinstance(results[1], ZeroDivisionError)
    assert isinstance(results[3], RowRefused)
    assert (results[2], results[4]) == (3, 4)
    assert rows(tmp_path / "numbers.db") == [1, 3, 4]


async def test_one_that_fails_alone_leaves_nothing_and_the_next_works(numbers: SqliteDatabase, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        await numbers.run(insert(-1))
    with pytest.raises(ZeroDivisionError):
        await numbers.run(insert(-2), durable=False)
    assert rows(tmp_path / "numbers.db") == []
    assert await numbers.run(insert(1)) == 1
    assert rows(tmp_path / "numbers.db") == [1]


async def test_a_waiter_that_is_cancelled_does_not_stop_its_transaction(
    numbers: SqliteDatabase, tmp_path: Path
) -> None:
    waiting = asyncio.create_task(numbers.run(insert(1)))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await numbers.run(insert(2))
    assert rows(tmp_path / "numbers.db") == [1, 2]


async def test_closing_finishes_what_was_handed_over_and_refuses_the_rest(
    numbers: SqliteDatabase, tmp_path: Path
) -> None:
    waiting = [asyncio.create_task(numbers.run(insert(n))) for n in range(20)]
    await asyncio.sleep(0)
    await numbers.close()
    assert await asyncio.gather(*waiting) == list(range(20))
    with pytest.raises(ApiError):
        await numbers.run(insert(99))
    assert rows(tmp_path / "numbers.db") == list(range(20))


async def test_a_locked_file_refuses_everybody_soon_and_recovers(numbers: SqliteDatabase, tmp_path: Path) -> None:
    other = driver.connect(tmp_path / "numbers.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    began = time.monotonic()
    first = asyncio.create_task(numbers.run(insert(1)))
    await asyncio.sleep(0.05)
    late = [asyncio.create_task(numbers.run(insert(n), durable=False)) for n in range(2, 400)]
    refused = await asyncio.gather(first, *late, return_exceptions=True)
    # One wait for all, not one for each group in the queue.
    assert time.monotonic() - began < 10 * 0.2
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


async def test_a_backup_of_a_database_in_use_is_whole_without_the_journal(
    numbers: SqliteDatabase, tmp_path: Path
) -> None:
    await numbers.run(insert(1))
    source, backup = driver.connect(tmp_path / "numbers.db"), driver.connect(tmp_path / "backup.db")
    source.backup(backup)
    backup.close()
    source.close()
    await numbers.run(insert(2))
    assert rows(tmp_path / "backup.db") == [1]


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
    await numbers.run(insert(0))
    connection = numbers._engine.pool.connect().dbapi_connection
    connection.set_authorizer(lambda _, what, *__: driver.SQLITE_DENY if what == "COMMIT" else driver.SQLITE_OK)
    # Whether the first of them has its answer before its commit fails is a race.
    await asyncio.gather(numbers.run(insert(1), durable=False), return_exceptions=True)
    for number in (2, 3):
        with pytest.raises(ApiError) as caught:
            await numbers.run(insert(number), durable=False)
        assert caught.value.fault.name == "STATE_UNAVAILABLE"
    connection.set_authorizer(None)
    assert await numbers.run(insert(4), durable=False) == 4
    await numbers.run(insert(5))
    assert rows(tmp_path / "numbers.db") == [0, 4, 5]
