"""Death at any moment: after each forced crash the books add up and what was acknowledged is there."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path

import pytest
from sqlalchemy import Connection, select

from contract.errors import ApiError
from contract.voice_design.draft import DraftState
from state.accounts import organisations
from state.billing import audit
from state.billing.ledger import Ledger
from state.billing.postings import LEASE_S
from state.blobs.base import Blobs
from state.blobs.open import open_blobs
from state.database.base import Database
from state.database.open import connect, open_database
from state.database.tables import api_keys, budgets, reservations, tickets, usage_lines
from state.drafts import Draft, Drafts
from state.drafts.store import LEASE_S as DRAFT_LEASE_S
from state.tickets import Tickets
from state.voices import Voices
from tests.state.books import make_caller, money, pass_time, reserve, rows
from tests.state.crashing import DIED, WORKERS, bytes_of, make
from tests.state.drafts import COST
from tests.state.servers import Postgres, temporary_folder
from tests.waiting import until

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
NEVER = 1_000_000_000
LIMIT = 700
FAR_FUTURE_S = 10_000_000


def deaths(few: int, some: int, many: int) -> pytest.MarkDecorator:
    """How often a story ends with a death: before each push, on each merge, and when somebody asks for it."""
    each = [few, pytest.param(some, marks=pytest.mark.crashes), pytest.param(many, marks=pytest.mark.slow)]
    return pytest.mark.parametrize("crashes", each)


Die = Callable[[str, int, str, Path], tuple[int, int]]


@pytest.fixture(scope="module")
def die(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Die]:
    """Runs work in a child that dies at the n-th failpoint. Returns exit code and failpoints passed."""
    compiler = shutil.which("cc")
    if compiler is None:
        reason = "needs a C compiler for the failpoints"
        pytest.skip(reason)
    library = tmp_path_factory.mktemp("failpoints") / "failpoints.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, HERE / "failpoints.c", "-ldl"], check=True)
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.state.crashing"],
        cwd=ROOT,
        env=os.environ | {"LD_PRELOAD": str(library)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None
    assert child.stdout is not None

    def run(work: str, n: int, url: str, log: Path) -> tuple[int, int]:
        print(work, n, url, log, file=child.stdin, flush=True)
        code, passed = child.stdout.readline().split()
        return int(code), int(passed)

    yield run
    child.stdin.close()
    child.wait(30)
    child.stdout.close()


async def die_everywhere(
    die: Die, work: str, crashes: int, folder: Path, check: Check, fresh: Callable[[], Awaitable[str]]
) -> None:
    """Counts the failpoints of one undisturbed run, then dies at `crashes` of them, spread evenly, and checks."""
    log = folder / "log"
    code, total = die(work, NEVER, await fresh(), log)
    assert code == 0
    _take(log)
    assert total >= crashes
    for number in range(crashes):
        url = await fresh()
        code, passed = die(work, number * total // crashes, url, log)
        # The same work passes a few failpoints more or less each time: commits are shared.
        assert code == DIED or (code == 0 and passed <= number * total // crashes), (number, passed)
        await check(url, _take(log))


def _take(log: Path) -> list[str]:
    lines = log.read_text().splitlines() if log.exists() else []
    log.unlink(missing_ok=True)
    return lines


Check = Callable[[str, list[str]], Awaitable[None]]


async def books_are_right(url: str, acknowledged: list[str]) -> None:
    database = connect(url)
    try:
        await database.run(lambda connection: _prove(connection, acknowledged))
        # A later process finishes what the dead one left, and a replay of everything changes nothing.
        await pass_time(database, LEASE_S + 1)
        await Ledger(database).reap()
        await database.run(lambda connection: _prove(connection, acknowledged, nothing_held=True))
    finally:
        await database.close()


def _costs(connection: Connection) -> dict[str, int]:
    """micro-EUR of each usage line, by its reservation."""
    return {row.reservation_id: row.cost_micro_eur for row in connection.execute(select(usage_lines))}


def _prove(connection: Connection, acknowledged: list[str], nothing_held: bool = False) -> None:
    if connection.dialect.name == "sqlite":
        assert connection.exec_driver_sql("PRAGMA integrity_check").scalar_one() == "ok"
    assert audit.faults(connection) == []
    for row in connection.execute(select(budgets)):
        assert row.limit_micro_eur is None or row.spent_micro_eur + row.held_micro_eur <= row.limit_micro_eur
        assert row.held_micro_eur == 0 or not nothing_held
    lines = _costs(connection)
    states = {row.id: row.state for row in connection.execute(select(reservations))}
    made = {row.public_id: row.revoked_at for row in connection.execute(select(api_keys))}
    # What a purse paid for has no reservation of its own.
    assert {name for name, state in states.items() if state == "settled"} <= set(lines)
    assert {states.get(name, "settled") for name in lines} <= {"settled"}
    for line in acknowledged:
        match line.split():
            case ["settled", name, charged]:
                assert lines[name] == int(charged)
            case ["voided", name]:
                assert name not in lines
                assert states.get(name, "void") == "void"
            case ["made", public_id]:
                assert public_id in made
            case ["revoked", public_id]:
                assert made[public_id] is not None


async def prepare(url: str) -> None:
    """Organisation 1 with a limit that some requests will meet, and its user 1."""
    database = await open_database(url)
    await make_caller(database, LIMIT, LIMIT // 2)
    await database.close()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory where there is one: a process that dies leaves the same there as on a disk, only faster."""
    with temporary_folder() as path:
        yield path


def renewed(folder: Path) -> str:
    shutil.rmtree(folder / "bytes", ignore_errors=True)
    for old in folder.glob("used.db*"):
        old.unlink()
    return f"sqlite:///{folder / 'used.db'}"


@deaths(2, 5, 20)
async def test_a_first_start_survives_death(die: Die, folder: Path, crashes: int) -> None:
    async def fresh() -> str:
        return renewed(folder)

    async def starts_again(url: str, _acknowledged: list[str]) -> None:
        await prepare(url)
        await books_are_right(url, [])

    await die_everywhere(die, "migrate", crashes, folder, starts_again, fresh)


async def uploads_are_whole(url: str, acknowledged: list[str]) -> None:
    home = Path(url.removeprefix("sqlite:///")).parent
    database, blobs = connect(url), open_blobs(home)
    issued = await database.run(lambda connection: list(connection.execute(select(tickets))))
    found, told = {row.id: row for row in issued}, {name: word for word, name in map(str.split, acknowledged)}
    states = {
        "issued": {"issued", "uploaded"},
        "uploaded": {"uploaded"},
        "consuming": {"uploaded", "consumed"},
        "consumed": {"consumed"},
        "discarded": {"consumed"},
    }
    for name, word in told.items():
        assert found[name].state in states[word]
        if word == "discarded":
            assert not await blobs.exists(found[name].blob)
    for name, row in found.items():
        # A PUT that died leaves its ticket as it was, never one whose bytes are not all there.
        assert (row.blob == "") == (row.state == "issued")
        if row.state == "uploaded":
            assert await blobs.find(row.blob) == bytes_of(name)
    # Whoever comes later finds nothing of all this.
    await pass_time(database, FAR_FUTURE_S)
    await Tickets(database, blobs).sweep()
    assert await rows(database, tickets) == 0
    assert list((home / "bytes").glob("uploads/*")) == []
    await database.close()


AFTER: dict[str, set[DraftState]] = {
    "ordered": {"pending", "ready"},
    "ready": {"ready"},
    "adopting": {"ready", "adopted"},
    "adopted": {"adopted"},
    "discarding": {"ready", "adopted", "discarded"},
    "discarded": {"discarded"},
}
"""What the last word about a draft leaves possible."""


async def drafts_are_whole(url: str, acknowledged: list[str]) -> None:
    home = Path(url.removeprefix("sqlite:///")).parent
    database, blobs = connect(url), open_blobs(home)
    store, voices = Drafts(database, blobs, time.time), Voices(database)
    found, told = (
        {draft.id: draft for draft in await store.of(1)},
        {id: word for word, id in map(str.split, acknowledged)},
    )
    for draft_id, word in told.items():
        assert found[draft_id].state in AFTER[word]
    await bills_are_right(database, found)
    assert {draft.voice_slug for draft in found.values() if draft.state == "adopted"} == {
        own.voice.slug for own in await voices.of(1)
    }
    for draft in found.values():
        if draft.designed and draft.state in ("ready", "adopted"):
            for name in (draft.designed.clip_blob, draft.designed.sample_blob):
                assert await blobs.find(name) == bytes_of(name)
    await others_go_on(database, blobs, found)
    await database.close()


async def bills_are_right(database: Database, found: Mapping[str, Draft]) -> None:
    """A line for each draft that was made, nothing for others, and money held for those that are pending."""
    assert await database.run(audit.faults) == []
    lines = await database.run(_costs)
    assert lines == {draft.id: COST for draft in found.values() if draft.designed}
    query = select(reservations.c.id).where(reservations.c.state == "held")
    held = set(await database.run(lambda connection: list(connection.execute(query).scalars())))
    assert held == {draft.id for draft in found.values() if draft.state == "pending"}


async def others_go_on(database: Database, blobs: Blobs, found: Mapping[str, Draft]) -> None:
    """The next process finishes what is pending, and in the end only voices are left."""
    second = Drafts(database, blobs, lambda: time.time() + DRAFT_LEASE_S)
    for draft_id in await second.waiting(9):
        assert found[draft_id].state == "pending"
        held = await second.claim(draft_id)
        assert held is not None
        assert await make(second, blobs, held) is not None
    await bills_are_right(database, {draft.id: draft for draft in await second.of(1)})
    last = Drafts(database, blobs, lambda: time.time() + FAR_FUTURE_S)
    for _ in range(2):
        await last.expire()
        await last.sweep()
    left = await last.of(1)
    assert {draft.state for draft in left} <= {"adopted"}
    kept = {name for draft in left if draft.designed for name in (draft.designed.clip_blob, draft.designed.sample_blob)}
    stored = (path.relative_to(blobs._folder) for path in blobs._folder.glob("drafts/**/*") if path.is_file())  # type: ignore[attr-defined]
    assert {str(path) for path in stored} == kept


STORIES: dict[str, Check] = {"bill": books_are_right, "upload": uploads_are_whole, "design": drafts_are_whole}
"""Work of `tests.state.crashing`, and what is asked afterwards."""


@deaths(5, 30, 130)
@pytest.mark.parametrize("work", STORIES)
async def test_sqlite_and_bytes_survive_death_around_every_write(
    die: Die, folder: Path, work: str, crashes: int
) -> None:
    template = folder / "template.db"
    await prepare(f"sqlite:///{template}")

    async def fresh() -> str:
        url = renewed(folder)
        shutil.copy(template, folder / "used.db")
        return url

    await die_everywhere(die, work, crashes, folder, STORIES[work], fresh)


@deaths(2, 10, 50)
async def test_postgresql_survives_death_between_statements(
    die: Die, postgres_url: str, folder: Path, crashes: int
) -> None:
    await prepare(postgres_url)

    async def with_new_money() -> str:
        # The books go on from death to death: they have to be right all the time, not only when they are new.
        database = connect(postgres_url)
        await database.run(_raise_limits)
        await database.close()
        return postgres_url

    await die_everywhere(die, "bill", crashes, folder, books_are_right, with_new_money)


def _raise_limits(connection: Connection) -> None:
    for row in connection.execute(select(budgets)).all():
        more = LIMIT if row.user_id is None else LIMIT // 2
        organisations.set_limit(connection, row.org_id, row.user_id, row.spent_micro_eur + row.held_micro_eur + more)


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
            if not ledger._unposted:
                settled[hold.entry.id] = charged
            if len(settled) >= acknowledged_before and not stop.is_set():
                stop.set()
                await asyncio.to_thread(postgres.stop, crash=True)
                await asyncio.to_thread(postgres.restart)

    await asyncio.gather(*(worker() for _ in range(WORKERS)))
    await until(lambda: not ledger._unposted)
    await ledger.close()

    lines = await database.run(_costs)
    assert settled.items() <= lines.items()
    await pass_time(database, LEASE_S + 1)
    await Ledger(database).reap()
    assert await money(database, caller) == (sum(lines.values()), 0)
    await database.close()
