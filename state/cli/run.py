"""Runs one command: what reads is shown; what changes something leaves a line in `acts`, also where it is refused."""

from __future__ import annotations

import logging
from argparse import Namespace
from contextlib import closing
from functools import partial
from pathlib import Path

from sqlalchemy import Connection, make_url

from contract.errors import ApiError, without_text
from state.accounts import acts
from state.database.base import Database
from state.database.driver import driver
from state.database.open import connect, migrate, open_database
from state.open import DATABASE_VARIABLE, HOME_VARIABLE, default_database, is_shared

log = logging.getLogger(f"parlance.{__name__}")


async def run(options: Namespace, words: str, home: Path, url: str | None) -> None:
    """Runs what the parser has chosen, then prints its text. `words` are those of the command.

    `act` and `reading` are functions over one transaction, and `report` over several, printed as it is read. An act
    only reads where all its options of `shows_without` are missing.
    """
    address = url or default_database(home)
    if "migrate_to" in options:
        answer = await _migrate(address, options.migrate_to, words)
    else:
        if "creates" not in options and not is_shared(address):
            _require_file(address)
        database = await open_database(address, upgrade=not is_shared(address))
        try:
            answer = await _answer(database, options, words, home)
        finally:
            await database.close()
    if answer:
        print(answer)


async def _answer(database: Database, options: Namespace, words: str, home: Path) -> str:
    if "report" in options:
        async for text in options.report(database, options):
            print(text, end="")
        return ""
    if "reading" in options:
        return await database.run(partial(_read, options=options, home=home), patient=True)
    if not any(getattr(options, name) for name in getattr(options, "shows_without", ("act",))):
        return await database.run(lambda connection: str(options.act(connection, options, home)), patient=True)

    def act(connection: Connection) -> str:
        text: str = options.act(connection, options, home)
        acts.record(connection, words, f"done: {text}")
        return text

    try:
        return await database.run(act, patient=True)
    except Exception as error:
        await _record(database, words, _refusal(error))
        raise


def _read(connection: Connection, options: Namespace, home: Path) -> str:
    if connection.dialect.name == "sqlite":
        # A snapshot in place of the lock for writing: with a WAL, a server goes on writing meanwhile.
        for statement in ("ROLLBACK", "BEGIN"):
            connection.exec_driver_sql(statement)
    return str(options.reading(connection, options, home))


def _require_file(address: str) -> None:
    """Raises ValueError where SQLite's file is missing or has no tables. Changes nothing."""
    path = Path(make_url(address).database or "").absolute()
    try:
        with closing(driver.connect(f"{path.as_uri()}?mode=rw", uri=True)) as file:
            is_there = file.execute("SELECT 1 FROM sqlite_master").fetchone() is not None
    except driver.Error:
        is_there = path.exists()  # what cannot be read is refused where it is opened
    if not is_there:
        raise ValueError(f"there is no database in {path}; {HOME_VARIABLE} or {DATABASE_VARIABLE} names it")


async def _migrate(address: str, revision: str, words: str) -> str:
    database = connect(address)
    try:
        answer = f"the schema is at {await migrate(address, revision)}"
        await _record(database, words, f"done: {answer}")
        return answer
    except Exception as error:
        await _record(database, words, _refusal(error))
        raise
    finally:
        await database.close()


def _refusal(error: Exception) -> str:
    if isinstance(error, ApiError):
        return f"refused: {error.message}"
    return f"refused: {error if isinstance(error, ValueError | OSError) else type(error).__name__}"


async def _record(database: Database, words: str, result: str) -> None:
    """In a transaction of its own. A database that does not answer, or has no schema, cannot record that either."""
    try:
        await database.run(partial(acts.record, act=words, result=result))
    except Exception as error:
        log.debug("could not record an act: %s", without_text(error))
