"""Both databases under tests that ask for `database`; a real Redis for those that ask for `redis`."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from contract.access import Caller
from state.__main__ import main
from state.blobs.base import Blobs
from state.blobs.open import open_blobs
from state.database.base import Database
from state.database.open import connect, migrate
from tests.state.books import WAIT_S, make_caller
from tests.state.doubles import VirtualTime
from tests.state.drafts import Workshop
from tests.state.servers import Postgres, Redis, run_server, temporary_folder

ON_SQLITE_ALONE = ("test_accounts",)
"""Files whose statements are the same for both databases. What replicas share on PostgreSQL they try by themselves."""

MIGRATED = "migrated"
"""The database on PostgreSQL that others are copied from."""

Say = Callable[..., tuple[int, str, str]]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs what asks for a database on each kind of them."""
    if "database_url" in metafunc.fixturenames:
        is_on_one = metafunc.module.__name__.rpartition(".")[2] in ON_SQLITE_ALONE
        metafunc.parametrize("database_url", ["sqlite"] if is_on_one else ["sqlite", "postgresql"], indirect=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with run_server(Postgres) as server:
        asyncio.run(migrate(server.fresh(MIGRATED)))
        yield server


@pytest.fixture
def postgres_url(postgres: Postgres) -> str:
    return postgres.fresh(template=MIGRATED)


@pytest.fixture(scope="session")
def redis() -> Iterator[Redis]:
    with run_server(Redis) as server:
        yield server


@pytest.fixture
def database_url(request: pytest.FixtureRequest, migrated: Path) -> Iterator[str]:
    """Address of a database: with the schema where a test asks for `database`, too, otherwise empty."""
    has_schema = "database" in request.fixturenames
    if request.param == "postgresql":
        yield request.getfixturevalue("postgres").fresh(template=MIGRATED if has_schema else "template0")
        return
    with temporary_folder() as folder:
        if has_schema:
            shutil.copy(migrated, folder / "parlance.db")
        yield f"sqlite:///{folder / 'parlance.db'}"


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    opened = connect(database_url, WAIT_S)
    yield opened
    await opened.close()


@pytest.fixture
async def virtual(database_url: str, database: Database) -> AsyncIterator[VirtualTime]:
    """The database at a time that a test sets."""
    time = await VirtualTime.over(database_url, 1_800_000_000)
    yield time
    await time.database.close()


@pytest.fixture
def say(tmp_path: Path, migrated: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Say:
    """Runs one command line in this process. Returns exit code, stdout and stderr."""
    shutil.copy(migrated, tmp_path / "parlance.db")
    monkeypatch.setenv("PARLANCE_HOME", str(tmp_path))
    monkeypatch.delenv("PARLANCE_DATABASE_URL", raising=False)

    def run(*words: str) -> tuple[int, str, str]:
        try:
            code = main(words)
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def marks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a request has used is marked, however short it was."""
    monkeypatch.setattr("state.billing.reservation.MARK_S", 0.0)


@pytest.fixture
async def caller(database: Database) -> Caller:
    return await make_caller(database)


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return open_blobs(tmp_path)


@pytest.fixture
async def workshop(database: Database, blobs: Blobs) -> Workshop:
    return Workshop(database, blobs, await make_caller(database, 1000))
