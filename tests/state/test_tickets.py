import asyncio
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from sqlalchemy import func, select

from contract.access import Caller
from contract.errors import ApiError
from contract.limits import OPEN_UPLOADS, UPLOAD_S
from state import open_state
from state.blobs.base import Blobs, open_blobs
from state.database.base import Database, now_s, open_database
from state.database.tables import tickets
from state.tickets import AT_WORK_S, ID_PATTERN, SWEEP_AGAIN_S, SWEPT_AT_ONCE, Ticket, Tickets
from tests.state.books import make_caller, pass_time
from tests.state.servers import Postgres

pytestmark = pytest.mark.anyio

SLACK_S = 30
"""The database's clock goes on while a test runs: limits are tried from so far away."""


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return open_blobs(tmp_path)


@pytest.fixture
def store(database: Database, blobs: Blobs) -> Tickets:
    return Tickets(database, blobs)


@pytest.fixture
async def caller(database: Database) -> Caller:
    return await make_caller(database)


async def refusal(work) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await work
    return caught.value


async def issue(store: Tickets, caller: Caller) -> Ticket:
    return await store.issue(caller, "audio/webm", 1000)


async def upload(store: Tickets, blobs: Blobs, ticket: Ticket) -> str:
    blob = ticket.new_blob()
    await blobs.put(blob, b"sound")
    assert await store.uploaded(ticket.id, blob)
    return blob


async def rows(database: Database) -> int:
    query = select(func.count()).select_from(tickets)
    return await database.run(lambda connection: connection.execute(query).scalar_one())


async def test_a_ticket_is_issued_uploaded_consumed(
    store: Tickets, database: Database, blobs: Blobs, caller: Caller
) -> None:
    ticket = await issue(store, caller)
    assert (ticket.state, ticket.blob) == ("issued", "")
    assert 0 <= await database.run(now_s) + UPLOAD_S - ticket.expires_at < SLACK_S
    assert (ticket.org_id, ticket.content_type, ticket.size_bytes) == (caller.org_id, "audio/webm", 1000)
    assert await store.find(ticket.id) == ticket

    blob = await upload(store, blobs, ticket)
    found = await store.find(ticket.id)
    assert found is not None
    assert (found.state, found.blob) == ("uploaded", blob)

    consumed = await store.consume(caller.org_id, ticket.id)
    assert (consumed.state, consumed.blob) == ("consumed", blob)
    assert await blobs.find(consumed.blob) == b"sound"
    await store.discard(consumed)
    assert not await blobs.exists(consumed.blob)


async def test_ids_cannot_be_guessed_and_blobs_are_new_for_each_put(store: Tickets, caller: Caller) -> None:
    made = [await issue(store, caller) for _ in range(20)]
    assert all(re.fullmatch(r"upl_[a-z2-7]{26}", ticket.id) for ticket in made)
    assert len({ticket.id[:12] for ticket in made}) == 20
    assert len({made[0].new_blob() for _ in range(20)}) == 20
    assert made[0].new_blob().startswith(f"{made[0].name}/")


async def test_a_ticket_takes_one_recording(store: Tickets, blobs: Blobs, caller: Caller) -> None:
    ticket = await issue(store, caller)
    blob = await upload(store, blobs, ticket)
    assert not await store.uploaded(ticket.id, ticket.new_blob())
    assert (await store.consume(caller.org_id, ticket.id)).blob == blob
    assert not await store.uploaded(ticket.id, ticket.new_blob())
    assert not await store.uploaded("upl_" + "a" * 26, "x")


async def test_of_many_puts_one_wins(store: Tickets, caller: Caller) -> None:
    ticket = await issue(store, caller)
    names = [ticket.new_blob() for _ in range(20)]
    won = await asyncio.gather(*(store.uploaded(ticket.id, name) for name in names))
    assert sum(won) == 1
    assert (await store.consume(caller.org_id, ticket.id)).blob == names[won.index(True)]


async def test_of_50_at_once_exactly_one_consumes(store: Tickets, blobs: Blobs, caller: Caller) -> None:
    for _ in range(5):
        ticket = await issue(store, caller)
        await upload(store, blobs, ticket)
        asked = (store.consume(caller.org_id, ticket.id) for _ in range(50))
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert sum(isinstance(answer, Ticket) for answer in answers) == 1
        refused = [answer for answer in answers if isinstance(answer, ApiError)]
        assert {error.fault.name for error in refused} == {"NOT_FOUND"}
        assert len(refused) == 49


async def test_of_many_replicas_exactly_one_consumes(postgres: Postgres, blobs: Blobs) -> None:
    url = postgres.empty()
    replicas = [await open_database(url) for _ in range(5)]
    stores = [Tickets(database, blobs) for database in replicas]
    caller = await make_caller(replicas[0])
    for _ in range(10):
        ticket = await issue(stores[0], caller)
        await upload(stores[0], blobs, ticket)
        asked = (store.consume(caller.org_id, ticket.id) for store in stores for _ in range(10))
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert sum(isinstance(answer, Ticket) for answer in answers) == 1
    for database in replicas:
        await database.close()


async def test_what_cannot_be_consumed_is_not_found_in_the_same_words(
    store: Tickets, database: Database, blobs: Blobs, caller: Caller
) -> None:
    stranger = await make_caller(database, org="other")
    foreign, used, old = await issue(store, stranger), await issue(store, caller), await issue(store, caller)
    for ticket in (foreign, used, old):
        await upload(store, blobs, ticket)
    await store.consume(caller.org_id, used.id)
    errors = [
        await refusal(store.consume(caller.org_id, name))
        for name in (foreign.id, used.id, "upl_" + "a" * 26, "", "x", foreign.id + "\0", "\ud800", "upl_" + "Ä" * 26)
    ]
    await pass_time(database, UPLOAD_S)
    errors.append(await refusal(store.consume(caller.org_id, old.id)))
    assert {(error.fault.name, error.param) for error in errors} == {("NOT_FOUND", "upload_id")}
    assert len({re.sub("`.*?`", "", error.message, flags=re.DOTALL) for error in errors}) == 1
    await pass_time(database, -UPLOAD_S)
    assert (await store.consume(stranger.org_id, foreign.id)).id == foreign.id


async def test_bytes_never_uploaded_are_not_found_and_consume_the_ticket(store: Tickets, caller: Caller) -> None:
    ticket = await issue(store, caller)
    error = await refusal(store.consume(caller.org_id, ticket.id))
    assert error.fault.name == "NOT_FOUND"
    assert "nothing was uploaded" in error.message
    found = await store.find(ticket.id)
    assert found is not None
    assert found.state == "consumed"
    assert not await store.uploaded(ticket.id, ticket.new_blob())
    assert "nothing was uploaded" not in (await refusal(store.consume(caller.org_id, ticket.id))).message


@pytest.mark.parametrize(("seconds", "late"), [(-SLACK_S, False), (0, True), (1, True)])
async def test_a_ticket_expires_in_time(
    store: Tickets, blobs: Blobs, caller: Caller, database: Database, seconds: int, late: bool
) -> None:
    full, empty = await issue(store, caller), await issue(store, caller)
    await upload(store, blobs, full)
    await pass_time(database, UPLOAD_S + seconds)
    assert await store.uploaded(empty.id, empty.new_blob()) == (not late)
    if late:
        assert (await refusal(store.consume(caller.org_id, full.id))).fault.name == "NOT_FOUND"
    else:
        assert (await store.consume(caller.org_id, full.id)).id == full.id


async def test_an_organisation_has_so_many_unused_tickets_and_no_more(
    store: Tickets, database: Database, blobs: Blobs, caller: Caller
) -> None:
    made = [await issue(store, caller) for _ in range(OPEN_UPLOADS)]
    error = await refusal(issue(store, caller))
    assert (error.fault.status, error.headers()["Retry-After"]) == (429, "60")
    assert str(OPEN_UPLOADS) in error.message
    await issue(store, await make_caller(database, org="other"))
    # An uploaded one is unused still; one that was consumed, whatever came of it, makes room.
    await upload(store, blobs, made[0])
    assert (await refusal(issue(store, caller))).fault.name == "TOO_MANY_UPLOADS"
    await store.consume(caller.org_id, made[0].id)
    await issue(store, caller)
    assert (await refusal(issue(store, caller))).fault.name == "TOO_MANY_UPLOADS"
    await pass_time(database, UPLOAD_S)
    await issue(store, caller)


@pytest.mark.parametrize("come", [False, True])
async def test_tickets_of_an_organisation_are_for_no_more_than_stays_free(
    store: Tickets, database: Database, blobs: Blobs, caller: Caller, come: bool
) -> None:
    """Whether bytes have come or not: two have taken what they may, half and a quarter, and a third finds room."""
    size, took = 1000, 0
    other, third = [await make_caller(database, org=org) for org in ("other", "third")]

    async def take(taker: Caller) -> None:
        nonlocal took
        ticket = await store.issue(taker, "audio/webm", size, 8 * size - took)
        if come:
            await store.uploaded(ticket.id, ticket.new_blob())
            took += size

    for _ in range(4):
        await take(caller)
    assert (await refusal(take(caller))).fault.name == "TOO_MANY_UPLOADS"
    for _ in range(2):
        await take(other)
    assert (await refusal(take(other))).fault.name == "TOO_MANY_UPLOADS"
    await take(third)
    # One more would leave nothing: that is no fault of who has none.
    fourth = await make_caller(database, org="fourth")
    assert (await refusal(take(fourth))).fault.name == "STORE_FULL"


@pytest.mark.parametrize(("room", "name"), [(3999, "TOO_MANY_UPLOADS"), (4000, ""), (4001, "")])
async def test_bytes_count_until_they_are_swept(
    store: Tickets, database: Database, caller: Caller, room: int, name: str
) -> None:
    first = await issue(store, caller)
    await pass_time(database, UPLOAD_S)
    asked = store.issue(caller, "audio/webm", first.size_bytes, room)
    if name:
        assert (await refusal(asked)).fault.name == name
        await pass_time(database, AT_WORK_S)
        await store.sweep()
        await store.issue(caller, "audio/webm", first.size_bytes, room)
    else:
        await asked


async def test_a_ticket_that_was_used_before_anything_was_uploaded_keeps_its_place_until_it_expires(
    store: Tickets, database: Database, caller: Caller
) -> None:
    """Bytes may still be on their way for it, and the disk has to have room for them."""
    made = [await issue(store, caller) for _ in range(OPEN_UPLOADS)]
    for ticket in made:
        await refusal(store.consume(caller.org_id, ticket.id))
    assert (await refusal(issue(store, caller))).fault.name == "TOO_MANY_UPLOADS"
    await pass_time(database, UPLOAD_S - SLACK_S)
    assert (await refusal(issue(store, caller))).fault.name == "TOO_MANY_UPLOADS"
    await pass_time(database, SLACK_S)
    await issue(store, caller)


async def test_many_at_once_never_pass_the_limit(store: Tickets, database: Database, caller: Caller) -> None:
    answers = await asyncio.gather(*(issue(store, caller) for _ in range(OPEN_UPLOADS + 30)), return_exceptions=True)
    assert sum(isinstance(answer, Ticket) for answer in answers) == OPEN_UPLOADS == await rows(database)


async def test_sweep_leaves_what_is_in_use(store: Tickets, database: Database, blobs: Blobs, caller: Caller) -> None:
    waiting, heard = await issue(store, caller), await issue(store, caller)
    names = [await upload(store, blobs, ticket) for ticket in (waiting, heard)]
    await store.consume(caller.org_id, heard.id)
    await pass_time(database, AT_WORK_S - SLACK_S)
    await store.sweep()
    assert [await blobs.exists(name) for name in names] == [True, True]
    assert await rows(database) == 2


async def test_sweep_finishes_what_a_crash_left(
    store: Tickets, database: Database, blobs: Blobs, caller: Caller
) -> None:
    heard, forgotten = await issue(store, caller), await issue(store, caller)
    heard_blob, forgotten_blob = [await upload(store, blobs, ticket) for ticket in (heard, forgotten)]
    # Bytes of a PUT that died after they were stored and before that was recorded.
    orphan = forgotten.new_blob()
    await blobs.put(orphan, b"sound")
    await store.consume(caller.org_id, heard.id)
    await pass_time(database, AT_WORK_S)
    await store.sweep()
    assert [await blobs.exists(name) for name in (heard_blob, forgotten_blob, orphan)] == [False, True, True]
    # The row stays as long as its address: another PUT could still leave bytes.
    assert await rows(database) == 2
    late = heard.new_blob()
    await blobs.put(late, b"sound")
    await pass_time(database, UPLOAD_S - SLACK_S)
    await store.sweep()
    assert await rows(database) == 2
    await pass_time(database, SLACK_S)
    await store.sweep()
    assert [await blobs.exists(name) for name in (late, forgotten_blob, orphan)] == [False, False, False]
    assert await rows(database) == 0


class BrokenBlobs:
    """A store that cannot delete some bytes at the moment."""

    def __init__(self, blobs: Blobs, broken: set[str]) -> None:
        self._blobs = blobs
        self.broken = broken

    async def delete_all(self, folder: str) -> None:
        if folder in self.broken:
            raise OSError
        await self._blobs.delete_all(folder)


async def test_one_failing_row_never_stops_the_others(database: Database, blobs: Blobs, caller: Caller) -> None:
    broken = BrokenBlobs(blobs, set())
    store = Tickets(database, broken)
    made = [await issue(store, caller) for _ in range(4)]
    names = [await upload(store, blobs, ticket) for ticket in made]
    broken.broken = {made[0].name, made[2].name}
    await pass_time(database, UPLOAD_S + AT_WORK_S)
    await store.sweep()
    assert [await blobs.exists(name) for name in names] == [True, False, True, False]
    assert await rows(database) == 2
    broken.broken = set()
    await store.sweep()
    assert await rows(database) == 2
    await pass_time(database, SWEEP_AGAIN_S)
    await store.sweep()
    assert [await blobs.exists(name) for name in names] == [False] * 4
    assert await rows(database) == 0


async def test_discarding_never_fails_a_transcription(database: Database, blobs: Blobs, caller: Caller) -> None:
    broken = BrokenBlobs(blobs, set())
    store = Tickets(database, broken)
    ticket = await issue(store, caller)
    blob = await upload(store, blobs, ticket)
    broken.broken = {ticket.name}
    await store.discard(await store.consume(caller.org_id, ticket.id))
    assert await blobs.exists(blob)


async def test_many_that_fail_do_not_block_a_sweep(database: Database, blobs: Blobs, caller: Caller) -> None:
    broken = BrokenBlobs(blobs, set())
    store = Tickets(database, broken)
    broken.broken = {(await issue(store, caller)).name for _ in range(SWEPT_AT_ONCE)}
    await pass_time(database, 1)
    await issue(store, caller)
    await pass_time(database, UPLOAD_S + AT_WORK_S)
    await store.sweep()
    assert await rows(database) == SWEPT_AT_ONCE


async def test_tickets_survive_closing(tmp_path: Path) -> None:
    first = await open_state(tmp_path)
    caller = await make_caller(first.database)
    ticket = await issue(first.tickets, caller)
    blob = await upload(first.tickets, first.blobs, ticket)
    await first.close()
    second = await open_state(tmp_path)
    consumed = await second.tickets.consume(caller.org_id, ticket.id)
    address = urlsplit(await second.blobs.address(consumed.blob, 60))
    assert consumed.blob == blob
    assert address.scheme == "file"
    assert await asyncio.to_thread(Path(unquote(address.path)).read_bytes) == b"sound"
    await second.close()


@pytest.mark.parametrize(
    "name", ["", "upl_", "upl_" + "a" * 25, "upl_" + "a" * 27, "upl_" + "A" * 26, "upl_1" + "a" * 25]
)
async def test_what_is_no_id_is_not_looked_for(store: Tickets, name: str) -> None:
    assert ID_PATTERN.fullmatch(name) is None
    assert await store.find(name) is None
