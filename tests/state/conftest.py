"""Both databases under every test that asks for `database`; a real Redis for those that ask for `redis`."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from state.database.base import Database, connect, open_database
from tests.state.servers import (
    Postgres,
    Redis,
    find_binary,
    run_postgres,
    run_redis,
    temporary_folder,
)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    _need("initdb", "postgresql")
    with run_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def redis() -> Iterator[Redis]:
    _need("redis-server", "redis-server")
    with run_redis() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Address of an empty database of each kind."""
    if request.param == "postgresql":
        server: Postgres = request.getfixturevalue("postgres")
        yield server.empty()
        return
    with temporary_folder() as folder:
        yield f"sqlite:///{folder / 'parlance.db'}"


@pytest.fixture
async def database(database_url: str, migrated: Path) -> AsyncIterator[Database]:
    """A database of each kind with its schema."""
    if database_url.startswith("sqlite"):
        shutil.copy(migrated, database_url.removeprefix("sqlite:///"))
        opened = connect(database_url)
    else:
        opened = await open_database(database_url)
    yield opened
    await opened.close()


def _need(program: str, package: str) -> None:
    if find_binary(program) is None:
        reason = f"needs `{program}`: install the package {package}"
        # On a developer's machine a missing server is a gap in the report; in CI it is a fault.
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
