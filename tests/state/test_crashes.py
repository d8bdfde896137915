"""Death and loss of power at any moment: the books add up afterwards, and what was acknowledged is there."""

import asyncio
import errno
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, select

from contract.errors import ApiError
from state.accounts import organisations
from state.billing.ledger import Ledger
from state.billing.postings import LEASE_S
from state.database.open import connect
from state.database.tables import budgets
from tests.state.books import make_caller, money, pass_time, reserve
from tests.state.crashing import DIED, FOR_EVER, WORKERS, Job, Run, running
from tests.state.power import FAILING, notes, read_trace
from tests.state.remains import CHECKS, LIMIT, books_are_right, costs, prepare, watched
from tests.state.servers import Postgres, temporary_folder
from tests.waiting import until

LOSSES = {"bill": 16, "keep": 40, "upload": 20, "design": 16, "start": 8}
"""How often the power is lost in one run of each work."""


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    with running() as run:
        yield run


@pytest.fixture
def folder() -> Iterator[Path]:
    with temporary_folder() as path:
        yield path


@pytest.mark.parametrize("work", LOSSES)
async def test_what_was_acknowledged_survives_death_and_a_loss_of_power(run: Run, folder: Path, work: str) -> None:
    seed, after = random.randrange(1000), folder / "after"
    disk, entries = await watched(run, work, folder, seed)
    for acknowledged in disk.losses(entries, random.Random(seed), LOSSES[work], after):
        await CHECKS[work](f"sqlite:///{after / 'parlance.db'}", acknowledged)


async def syncs_of(run: Run, folder: Path, work: str) -> list[int]:
    """Numbers of those of its calls that sync."""
    _, entries = await watched(run, work, folder)
    calls = [entry.kind for entry in entries if entry.kind in FAILING]
    return [number for number, kind in enumerate(calls) if kind == "s"]


async def test_what_is_stored_after_a_sync_that_failed_survives_a_loss_of_power(run: Run, folder: Path) -> None:
    """The call that failed has left folders and names that may not be on the disk."""
    after = folder / "after"
    for number in await syncs_of(run, folder, "keep"):
        disk, entries = await watched(run, "keep", folder, fail=(number, number + 1, errno.EIO))
        for acknowledged in disk.losses(entries, random.Random(number), 20, after):
            await CHECKS["keep"](f"sqlite:///{after / 'parlance.db'}", acknowledged)


@pytest.mark.parametrize("calls", [1, FOR_EVER])
async def test_a_commit_that_is_found_after_a_sync_that_failed_survives_a_loss_of_power(
    run: Run, folder: Path, calls: int
) -> None:
    """Its lines were written, but are perhaps not on the disk; or the journal is, but not its name."""
    after = folder / "after"
    for number in await syncs_of(run, folder, "owe"):
        disk, entries = await watched(run, "owe", folder, fail=(number, number + calls, errno.EIO))
        for acknowledged in disk.losses(entries, random.Random(number), 0, after):
            await books_are_right(f"sqlite:///{after / 'parlance.db'}", acknowledged)


@pytest.mark.parametrize("deaths", [2, pytest.param(10, marks=pytest.mark.crashes)])
async def test_postgresql_survives_death_between_statements(
    run: Run, postgres_url: str, folder: Path, deaths: int
) -> None:
    await prepare(postgres_url)
    trace, total = folder / "trace", 0
    for number in range(deaths + 1):
        # The first one lives, and counts.
        die_at, code = max(1, (number - 1) * total // deaths) if number else -1, 0
        while not code:
            # The books go on from death to death: they have to be right all the time, not only when they are new.
            await raise_limits(postgres_url)
            code = run(Job("bill", postgres_url, str(trace), seed=number, die_at=die_at))
            acknowledged = notes(read_trace(trace))
            total = total or int(acknowledged[-1].split()[1])
            await books_are_right(postgres_url, acknowledged)
            if not number:
                break
            die_at = die_at * 3 // 4  # this history had fewer statements than the first
        assert code == (DIED if number else 0)


async def raise_limits(url: str) -> None:
    def raise_all(connection: Connection) -> None:
        for row in connection.execute(select(budgets)).all():
            most = row.spent_micro_eur + row.held_micro_eur + (LIMIT if row.user_id is None else LIMIT // 2)
            organisations.set_limit(connection, row.org_id, row.user_id, most)

    database = connect(url)
    await database.run(raise_all)
    await database.close()


@pytest.mark.parametrize(
    "acknowledged_before", [pytest.param(3, marks=pytest.mark.crashes), 17, pytest.param(40, marks=pytest.mark.crashes)]
)
async def test_postgresql_survives_its_death(postgres: Postgres, postgres_url: str, acknowledged_before: int) -> None:
    database = connect(postgres_url)
    caller = await make_caller(database, 100_000)
    ledger, settled, stop = Ledger(database), dict[str, int](), asyncio.Event()

    async def worker() -> None:
        while not stop.is_set():
            try:
                hold = await reserve(ledger, caller, 50)
            except ApiError:
                continue
            charged = await hold.settle(40, 1, "tokens")
            if not ledger.backlog:
                settled[hold.entry.id] = charged
            if len(settled) >= acknowledged_before and not stop.is_set():
                stop.set()
                await asyncio.to_thread(postgres.stop, crash=True)
                await asyncio.to_thread(postgres.restart)

    await asyncio.gather(*(worker() for _ in range(WORKERS)))
    await until(lambda: not ledger.backlog)
    await ledger.close()

    lines = await database.run(costs)
    assert settled.items() <= lines.items()
    await pass_time(database, LEASE_S + 1)
    await Ledger(database).reap()
    assert await money(database, caller) == (sum(lines.values()), 0)
    await database.close()
