"""PostgreSQL that stops, is slow or has no connection left, and what became of transactions meanwhile."""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import asyncpg
import pytest
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import create_async_engine

from contract.errors import ApiError
from state.database.base import Database
from state.database.open import connect
from tests.state.books import WAIT_S, fault_of
from tests.state.servers import Postgres

COUNT = text("UPDATE t SET n = n + 1 WHERE id = 1")


@pytest.fixture
def url(postgres: Postgres) -> str:
    return postgres.fresh()


@pytest.fixture
async def counter(url: str) -> AsyncIterator[Database]:
    database = connect(url, WAIT_S)
    await database.run(make_counter)
    yield database
    await database.close()


def make_counter(connection: Connection) -> None:
    connection.execute(text("CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER NOT NULL)"))
    connection.execute(text("INSERT INTO t VALUES (1, 0)"))


def count(connection: Connection) -> int:
    connection.execute(COUNT)
    return value(connection)


def value(connection: Connection) -> int:
    found: int = connection.execute(text("SELECT n FROM t")).scalar_one()
    return found


async def test_transactions_of_one_row_take_turns_and_all_count(counter: Database) -> None:
    results = await asyncio.gather(*(counter.run(count, durable=n % 2 == 0, row=1) for n in range(60)))
    assert sorted(results) == list(range(1, 61))


async def test_a_row_that_somebody_holds_refuses_soon_and_recovers(counter: Database, url: str) -> None:
    tried: list[int] = []

    def tries(connection: Connection) -> int:
        tried.append(1)
        return count(connection)

    impatient = connect(url, wait_s=1.0)
    other = create_async_engine(url.replace("postgresql", "postgresql+asyncpg"))
    async with other.begin() as connection:
        await connection.execute(COUNT)
        refused = await asyncio.gather(*(impatient.run(tries, row=1) for _ in range(20)), return_exceptions=True)
        # One waits for the row, and the others for their turn.
        assert len(tried) == 1
        assert {error.fault.name for error in refused if isinstance(error, ApiError)} == {"STATE_UNAVAILABLE"}
        assert all(isinstance(error, ApiError) for error in refused)
    assert await counter.run(count, row=1) == await impatient.run(value, row=1) == 2
    await impatient.close()
    await other.dispose()


@pytest.mark.parametrize("is_noticed", [False, True])
async def test_after_a_restart_the_first_transactions_work(
    counter: Database, postgres: Postgres, is_noticed: bool
) -> None:
    await asyncio.gather(*(counter.run(count) for _ in range(8)))
    await asyncio.to_thread(postgres.stop, crash=is_noticed)
    if is_noticed:
        assert await fault_of(counter.run(count)) == "STATE_UNAVAILABLE"
    await asyncio.to_thread(postgres.restart)
    # Every pooled connection is dead now.
    assert await asyncio.gather(*(counter.run(count, row=1) for _ in range(8))) == list(range(9, 17))


async def test_a_failure_whose_caller_has_gone_is_no_error_of_the_loop(counter: Database) -> None:
    reported: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, report: reported.append(report))
    failing = asyncio.create_task(counter.run(lambda connection: connection.execute(text("SELECT 1 / 0"))))
    await asyncio.sleep(0)
    failing.cancel()
    await asyncio.wait({failing})
    await counter.close()
    del failing  # which holds it
    gc.collect()
    loop.set_exception_handler(None)
    assert reported == []


async def test_what_is_under_way_when_it_is_closed_is_done(counter: Database, url: str) -> None:
    other = await asyncpg.connect(url)
    async with other.transaction():
        await other.execute("UPDATE t SET n = 5 WHERE id = 1")
        counting, closing = asyncio.create_task(counter.run(count)), asyncio.create_task(counter.close())
        while not await other.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
            assert not closing.done()
    await closing
    assert (counting.done(), await counting) == (True, 6)
    await other.close()


async def test_a_connection_that_can_only_read_is_replaced(url: str, postgres: Postgres) -> None:
    """As one to a standby, which was opened while the primary was away."""
    setting = f"ALTER DATABASE {url.rpartition('/')[2]} {{}} default_transaction_read_only"
    first, database = connect(url, WAIT_S), connect(url, WAIT_S)
    await first.run(make_counter)
    await first.close()
    await asyncio.to_thread(postgres.run, setting.format("SET") + " = on")
    assert await fault_of(database.run(count)) == "STATE_UNAVAILABLE"
    assert await database.run(value) == 0
    await asyncio.to_thread(postgres.run, setting.format("RESET"))
    assert await database.run(count) == 1
    await database.close()


async def test_transactions_share_a_connection_where_the_server_has_no_more(
    counter: Database, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    others = list[asyncpg.Connection]()
    with suppress(asyncpg.TooManyConnectionsError):
        while True:
            others.append(await asyncpg.connect(url))
    without = connect(url, wait_s=0.5)
    with pytest.raises(ApiError, match="state_unavailable"):
        await without.run(count)
    assert "TooManyConnectionsError" in caplog.text
    assert sorted(await asyncio.gather(*(counter.run(count) for _ in range(8)))) == list(range(1, 9))
    for other in others:
        await other.close()
    assert await without.run(count) == 9
    await without.close()


async def test_a_waiter_that_is_cancelled_does_not_stop_its_transaction(counter: Database) -> None:
    waiting = asyncio.create_task(counter.run(count, row=1))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert await counter.run(count, row=1) == 2, "it waits for its turn, which comes after the other's end"
