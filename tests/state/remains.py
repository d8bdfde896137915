"""Checks of what is found after a crash: what was acknowledged is there, the books add up, and the work goes on."""

import shutil
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from sqlalchemy import Connection, select

from contract.voice_design.draft import DraftState
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
from state.open import open_state
from state.tickets import Tickets
from state.voices import Voices
from tests.state.books import make_caller, pass_time, rows
from tests.state.crashing import CLIPS, FAR_FUTURE_S, Job, Run, bytes_of, make
from tests.state.drafts import COST
from tests.state.power import Disk, Entry, read_trace

Check = Callable[[str, list[str]], Awaitable[None]]
"""Gets the address of the database, and the notes of `crashing`. Raises AssertionError."""

LIMIT = 700


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


def costs(connection: Connection) -> dict[str, int]:
    """micro-EUR of each usage line, by its reservation."""
    return {row.reservation_id: row.cost_micro_eur for row in connection.execute(select(usage_lines))}


def _prove(connection: Connection, acknowledged: list[str], nothing_held: bool = False) -> None:
    if connection.dialect.name == "sqlite":
        assert connection.exec_driver_sql("PRAGMA integrity_check").scalar_one() == "ok"
    assert audit.faults(connection) == []
    for row in connection.execute(select(budgets)):
        assert row.limit_micro_eur is None or row.spent_micro_eur + row.held_micro_eur <= row.limit_micro_eur
        assert row.held_micro_eur == 0 or not nothing_held
    lines = costs(connection)
    states = {row.id: row.state for row in connection.execute(select(reservations))}
    made = {row.public_id: row.revoked_at for row in connection.execute(select(api_keys))}
    # What a purse paid for has no reservation of its own.
    assert {name for name, state in states.items() if state == "settled"} <= set(lines)
    assert {states.get(name, "settled") for name in lines} <= {"settled"}
    for line in acknowledged:
        match line.split():
            case ["settled", name, charged]:
                assert lines[name] == int(charged)
            case ["late", name]:
                assert name in lines
            case ["voided", name]:
                assert name not in lines
                # Where the database failed, the lease ends it.
                assert states.get(name, "void") in ({"void"} if nothing_held else {"void", "held"})
            case ["made", public_id]:
                assert public_id in made
            case ["revoked", public_id]:
                assert made[public_id] is not None


async def prepare(url: str) -> None:
    """Organisation 1 with a limit that some requests will meet, and its user 1."""
    database = await open_database(url)
    await make_caller(database, LIMIT, LIMIT // 2)
    await database.close()


async def watched(
    run: Run, work: str, folder: Path, seed: int = 0, fail: tuple[int, int, int] = (0, 0, 0)
) -> tuple[Disk, list[Entry]]:
    """Does a work in a new `home` of this folder. Returns the disk before it, and the trace of it."""
    home, trace = folder / "home", folder / "trace"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    url = f"sqlite:///{home / 'parlance.db'}"
    if work not in WITHOUT_DATABASE:
        await prepare(url)
    disk = Disk(home)
    code = run(Job(work, url, str(trace), str(home), seed, fail=fail))
    assert code == 0 or any(fail)
    return disk, read_trace(trace)


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
    }
    is_swept = "swept all" in acknowledged
    for name, word in told.items():
        assert word not in states or is_swept or found[name].state in states[word]
    for name, row in found.items():
        # A PUT that died leaves its ticket as it was, never one whose bytes are not all there.
        assert (row.blob == "") == (row.state == "issued")
        if row.state == "uploaded" and not is_swept:
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
        assert word not in AFTER or found[draft_id].state in AFTER[word]
    await bills_are_right(database, found)
    assert {draft.voice_slug for draft in found.values() if draft.state == "adopted"} == {
        own.voice.slug for own in await voices.of(1)
    }
    for draft in found.values():
        if draft.designed and draft.state in ("ready", "adopted"):
            for name in (draft.designed.clip_blob, draft.designed.sample_blob):
                assert await blobs.find(name) == bytes_of(name)
    kept = await others_go_on(database, blobs, found)
    stored = (home / "bytes").glob("drafts/**/*")
    assert {str(path.relative_to(home / "bytes")) for path in stored if path.is_file()} == kept
    await database.close()


async def bills_are_right(database: Database, found: Mapping[str, Draft]) -> None:
    """A line for each draft that was made, nothing for others, and money held for those that are pending."""
    assert await database.run(audit.faults) == []
    lines = await database.run(costs)
    assert lines == {draft.id: COST for draft in found.values() if draft.designed}
    query = select(reservations.c.id).where(reservations.c.state == "held")
    held = set(await database.run(lambda connection: list(connection.execute(query).scalars())))
    assert held == {draft.id for draft in found.values() if draft.state == "pending"}


async def others_go_on(database: Database, blobs: Blobs, found: Mapping[str, Draft]) -> set[str]:
    """The next process finishes what is pending, and in the end only voices are left. Returns names of their bytes."""
    second = Drafts(database, blobs, lambda: time.time() + DRAFT_LEASE_S)
    for draft_id in await second.waiting(9):
        assert found[draft_id].state == "pending"
        held = await second.claim(draft_id)
        assert held is not None
        assert await make(second, blobs, held) is not None
    await bills_are_right(database, {draft.id: draft for draft in await second.of(1)})
    # An order that died before it was released to be worked on ends first, and is deleted a day later.
    for later_s in (FAR_FUTURE_S, FAR_FUTURE_S, 2 * FAR_FUTURE_S):
        last = Drafts(database, blobs, lambda later_s=later_s: time.time() + later_s)
        await last.expire()
        await last.sweep()
    left = await last.of(1)
    assert {draft.state for draft in left} <= {"adopted"}
    return {name for draft in left if draft.designed for name in (draft.designed.clip_blob, draft.designed.sample_blob)}


async def clips_are_there(url: str, acknowledged: list[str]) -> None:
    blobs = open_blobs(Path(url.removeprefix("sqlite:///")).parent)
    told: dict[str, str] = {}
    again = set[str]()
    for word, name in map(str.split, acknowledged):
        if word == "calls":
            again = {*told}  # nothing fails any more, and the work begins again: with "first"
        else:
            told[name] = word
            again.discard(name)
    for name in CLIPS:
        first, other = bytes_of(name), bytes_of("other")
        after: dict[str, set[bytes | None]] = {
            "first": {first, other},
            "other": {other, None},
            "deleted": {None, first},
        }
        may_be = after.get(told.get(name, ""), {first, None}) | ({first} if name in again else set())
        assert await blobs.find(name) in may_be, (name, told.get(name))


async def starts_again(url: str, acknowledged: list[str]) -> None:
    home = Path(url.removeprefix("sqlite:///")).parent
    state = await open_state(home)
    made = await state.ensure_demo(home)
    for line in acknowledged:
        match line.split():
            case ["key", key]:
                assert made in (None, key)
                assert (await state.accounts.authenticate(f"Bearer {key}")).org == "demo"
    await state.close()
    assert any(path.is_file() for path in (home / "demo.key", home / "demo.key.new"))
    await books_are_right(url, [])


CHECKS: dict[str, Check] = {
    "bill": books_are_right,
    "keep": clips_are_there,
    "upload": uploads_are_whole,
    "design": drafts_are_whole,
    "start": starts_again,
}
"""What is asked afterwards, by the work of `tests.state.crashing`."""

WITHOUT_DATABASE = ("keep", "start")
"""Works that begin in an empty folder."""
