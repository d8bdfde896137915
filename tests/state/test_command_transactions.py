"""Transactions of the command line beside a server on the same database: some take longer than a client would wait."""

import asyncio
import time
from argparse import Namespace
from pathlib import Path

from sqlalchemy import Connection

from state.billing import audit
from state.billing.ledger import Ledger
from state.cli.run import _answer
from state.database.base import Database
from state.database.open import connect
from tests.state.books import make_caller, reserve

WAIT_S = 1.0


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
    server, reader = connect(database_url, WAIT_S), connect(database_url, WAIT_S)

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
    own = connect(database_url, WAIT_S)
    options = Namespace(act=lambda connection, *_: sleep(connection) or "set")
    assert await _answer(own, options, "budget set", tmp_path) == "set"
    await own.close()
