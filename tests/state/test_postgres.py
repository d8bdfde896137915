import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import create_async_engine

from contract.errors import ApiError
from state.database.base import Database, RowRefused, connect
from tests.state.servers import Postgres

WAIT_S = 0.5
COUNT = text("UPDATE t SET n = n + 1 WHERE id = 1")


@pytest.fixture
def url(postgres: Postgres) -> str:
    return postgres.fresh()


@pytest.fixture
async def counter(url: str) -> AsyncIterator[Database]:
    """A database with one table `t` of one row, whose waits are short."""
    database = connect(url, wait_s=WAIT_S)
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
    loop = asyncio.get_running_loop()
    other = create_async_engine(url.replace("postgresql", "postgresql+asyncpg"))
    async with other.begin() as connection:
        await connection.execute(COUNT)
        began = loop.time()
        refused = await asyncio.gather(*(counter.run(count, row=1) for _ in range(20)), return_exceptions=True)
        assert loop.time() - began < 10 * WAIT_S
        assert {error.fault.name for error in refused if isinstance(error, ApiError)} == {"STATE_UNAVAILABLE"}
        assert all(isinstance(error, ApiError) for error in refused)
    assert await counter.run(count, row=1) == 2
    await other.dispose()


async def test_after_a_restart_the_first_transaction_works(counter: Database, postgres: Postgres) -> None:
    assert await counter.run(count) == 1
    await asyncio.to_thread(postgres.stop, crash=True)
    with pytest.raises(ApiError) as caught:
        await counter.run(count)
    assert caught.value.fault.name == "STATE_UNAVAILABLE"
    await asyncio.to_thread(postgres.restart)
    assert await counter.run(count) == 2


async def test_a_server_that_was_restarted_unnoticed_is_not_noticed(counter: Database, postgres: Postgres) -> None:
    await asyncio.gather(*(counter.run(count) for _ in range(8)))
    await asyncio.to_thread(postgres.stop)
    await asyncio.to_thread(postgres.restart)
    # Every pooled connection is dead now.
    assert await asyncio.gather(*(counter.run(count, row=1) for _ in range(8))) == list(range(9, 17))


async def test_a_refused_row_says_nothing_of_itself(counter: Database) -> None:
    def twice(connection: Connection) -> None:
        connection.execute(text("INSERT INTO t VALUES (1, :n)"), {"n": 424_242})

    with pytest.raises(RowRefused) as caught:
        await counter.run(twice)
    assert str(caught.value) == ""
    assert caught.value.__cause__ is None


async def test_a_waiter_that_is_cancelled_does_not_stop_its_transaction(counter: Database) -> None:
    waiting = asyncio.create_task(counter.run(count))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert await counter.run(count) == 2
