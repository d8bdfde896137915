from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field

import pytest

from contract.access import Caller
from contract.errors import ApiError
from contract.limits import OPEN_UPLOADS, UPLOAD_S
from state.blobs.base import Blobs
from state.database.base import Database, now_s
from state.database.tables import tickets
from state.tickets import AT_WORK_S, ID_PATTERN, SWEEP_AGAIN_S, SWEPT_AT_ONCE, Ticket, Tickets
from tests.state.books import SLACK_S, fault_of, make_caller, opened, pass_time, refusal, rows
from tests.state.doubles import BrokenBlobs


@dataclass
class Desk:
    database: Database
    blobs: Blobs
    caller: Caller
    store: Tickets = field(init=False)

    def __post_init__(self) -> None:
        self.store = Tickets(self.database, self.blobs)

    async def of_another(self, org: str = "other") -> Desk:
        return Desk(self.database, self.blobs, await make_caller(self.database, org=org))

    async def issue(self) -> Ticket:
        return await self.store.issue(self.caller, "audio/webm", 1000)

    async def upload(self, ticket: Ticket) -> str:
        blob = ticket.new_blob()
        await self.blobs.put(blob, b"sound")
        assert await self.store.uploaded(ticket.id, blob)
        return blob

    async def consume(self, ticket_id: str) -> Ticket:
        return await self.store.consume(self.caller.org_id, ticket_id)

    async def rows(self) -> int:
        return await rows(self.database, tickets)


@pytest.fixture
def desk(database: Database, blobs: Blobs, caller: Caller) -> Desk:
    return Desk(database, blobs, caller)


async def test_a_ticket_is_issued_uploaded_consumed(desk: Desk) -> None:
    ticket = await desk.issue()
    assert (ticket.state, ticket.blob) == ("issued", "")
    assert 0 <= await desk.database.run(now_s) + UPLOAD_S - ticket.expires_at < SLACK_S
    assert (ticket.org_id, ticket.content_type, ticket.size_bytes) == (desk.caller.org_id, "audio/webm", 1000)
    assert await desk.store.find(ticket.id) == ticket

    blob = await desk.upload(ticket)
    found = await desk.store.find(ticket.id)
    assert found is not None
    assert (found.state, found.blob) == ("uploaded", blob)

    assert not await desk.store.uploaded(ticket.id, ticket.new_blob())
    consumed = await desk.consume(ticket.id)
    assert (consumed.state, consumed.blob) == ("consumed", blob)
    assert not await desk.store.uploaded(ticket.id, ticket.new_blob())
    assert not await desk.store.uploaded("upl_" + "a" * 26, "x")
    assert await desk.blobs.find(consumed.blob) == b"sound"
    await desk.store.discard(consumed)
    assert not await desk.blobs.exists(consumed.blob)


async def test_ids_cannot_be_guessed_and_blobs_are_new_for_each_put(desk: Desk) -> None:
    made = [await desk.issue() for _ in range(20)]
    assert all(re.fullmatch(r"upl_[a-z2-7]{26}", ticket.id) for ticket in made)
    assert len({ticket.id[:12] for ticket in made}) == 20
    assert len({made[0].new_blob() for _ in range(20)}) == 20
    assert made[0].new_blob().startswith(f"{made[0].name}/")


async def test_of_many_puts_one_wins(desk: Desk) -> None:
    ticket = await desk.issue()
    names = [ticket.new_blob() for _ in range(20)]
    won = await asyncio.gather(*(desk.store.uploaded(ticket.id, name) for name in names))
    assert sum(won) == 1
    assert (await desk.consume(ticket.id)).blob == names[won.index(True)]


async def test_of_many_processes_exactly_one_consumes(database: Database, database_url: str, blobs: Blobs) -> None:
    async with opened(database_url, 5) as replicas:
        caller = await make_caller(replicas[0])
        desks = [Desk(replica, blobs, caller) for replica in replicas]
        for _ in range(10):
            ticket = await desks[0].issue()
            await desks[0].upload(ticket)
            consuming = (desk.consume(ticket.id) for desk in desks for _ in range(10))
            answers = await asyncio.gather(*consuming, return_exceptions=True)
            assert sum(isinstance(answer, Ticket) for answer in answers) == 1
            refused = [answer.fault.name for answer in answers if isinstance(answer, ApiError)]
            assert refused == ["NOT_FOUND"] * 49


async def test_what_cannot_be_consumed_is_not_found_in_the_same_words(desk: Desk) -> None:
    stranger = await desk.of_another()
    foreign, used, old = await stranger.issue(), await desk.issue(), await desk.issue()
    for ticket in (foreign, used, old):
        await desk.upload(ticket)
    await desk.consume(used.id)
    errors = [
        await refusal(desk.consume(name))
        for name in (foreign.id, used.id, "upl_" + "a" * 26, "", "x", foreign.id + "\0", "\ud800", "upl_" + "Ä" * 26)
    ]
    await pass_time(desk.database, UPLOAD_S)
    errors.append(await refusal(desk.consume(old.id)))
    assert {(error.fault.name, error.param) for error in errors} == {("NOT_FOUND", "upload_id")}
    assert len({re.sub("`.*?`", "", error.message, flags=re.DOTALL) for error in errors}) == 1
    await pass_time(desk.database, -UPLOAD_S)
    assert (await stranger.consume(foreign.id)).id == foreign.id


async def test_bytes_never_uploaded_are_not_found_and_consume_the_ticket(desk: Desk) -> None:
    ticket = await desk.issue()
    error = await refusal(desk.consume(ticket.id))
    assert error.fault.name == "NOT_FOUND"
    assert "nothing was uploaded" in error.message
    found = await desk.store.find(ticket.id)
    assert found is not None
    assert found.state == "consumed"
    assert not await desk.store.uploaded(ticket.id, ticket.new_blob())
    assert "nothing was uploaded" not in (await refusal(desk.consume(ticket.id))).message


@pytest.mark.parametrize(("seconds", "late"), [(-SLACK_S, False), (0, True), (1, True)])
async def test_a_ticket_expires_in_time(desk: Desk, seconds: int, late: bool) -> None:
    full, empty = await desk.issue(), await desk.issue()
    await desk.upload(full)
    await pass_time(desk.database, UPLOAD_S + seconds)
    assert await desk.store.uploaded(empty.id, empty.new_blob()) == (not late)
    assert await fault_of(desk.consume(full.id)) == ("NOT_FOUND" if late else None)


async def test_an_organisation_has_so_many_unused_tickets_and_no_more(desk: Desk) -> None:
    made = [await desk.issue() for _ in range(OPEN_UPLOADS)]
    error = await refusal(desk.issue())
    assert (error.fault.status, error.headers()["Retry-After"]) == (429, "60")
    assert str(OPEN_UPLOADS) in error.message
    await (await desk.of_another()).issue()
    # An uploaded one is unused still; one that was consumed, whatever came of it, makes room.
    await desk.upload(made[0])
    assert await fault_of(desk.issue()) == "TOO_MANY_UPLOADS"
    await desk.consume(made[0].id)
    await desk.issue()
    assert await fault_of(desk.issue()) == "TOO_MANY_UPLOADS"
    await pass_time(desk.database, UPLOAD_S)
    await desk.issue()


@pytest.mark.parametrize("come", [False, True])
async def test_tickets_of_an_organisation_are_for_no_more_than_stays_free(desk: Desk, come: bool) -> None:
    """Whether bytes have come or not: two have taken what they may, half and a quarter, and a third finds room."""
    size, took = 1000, 0
    other, third = [await make_caller(desk.database, org=org) for org in ("other", "third")]

    async def take(taker: Caller) -> None:
        nonlocal took
        ticket = await desk.store.issue(taker, "audio/webm", size, 8 * size - took)
        if come:
            await desk.store.uploaded(ticket.id, ticket.new_blob())
            took += size

    for _ in range(4):
        await take(desk.caller)
    assert await fault_of(take(desk.caller)) == "TOO_MANY_UPLOADS"
    for _ in range(2):
        await take(other)
    assert await fault_of(take(other)) == "TOO_MANY_UPLOADS"
    await take(third)
    # One more would leave nothing: that is no fault of who has none.
    fourth = await make_caller(desk.database, org="fourth")
    assert await fault_of(take(fourth)) == "STORE_FULL"


@pytest.mark.parametrize(("room", "fault"), [(3999, "TOO_MANY_UPLOADS"), (4000, None), (4001, None)])
async def test_bytes_count_until_they_are_swept(desk: Desk, room: int, fault: str | None) -> None:
    first = await desk.issue()
    await pass_time(desk.database, UPLOAD_S)
    assert await fault_of(desk.store.issue(desk.caller, "audio/webm", first.size_bytes, room)) == fault
    if fault:
        await pass_time(desk.database, AT_WORK_S)
        await desk.store.sweep()
        await desk.store.issue(desk.caller, "audio/webm", first.size_bytes, room)


async def test_a_ticket_that_was_used_before_anything_was_uploaded_keeps_its_place_until_it_expires(desk: Desk) -> None:
    """Bytes may still be on their way for it, and the disk has to have room for them."""
    made = [await desk.issue() for _ in range(OPEN_UPLOADS)]
    for ticket in made:
        await refusal(desk.consume(ticket.id))
    assert await fault_of(desk.issue()) == "TOO_MANY_UPLOADS"
    await pass_time(desk.database, UPLOAD_S - SLACK_S)
    assert await fault_of(desk.issue()) == "TOO_MANY_UPLOADS"
    await pass_time(desk.database, SLACK_S)
    await desk.issue()


async def test_many_at_once_never_pass_the_limit(desk: Desk) -> None:
    answers = await asyncio.gather(*(desk.issue() for _ in range(OPEN_UPLOADS + 30)), return_exceptions=True)
    assert sum(isinstance(answer, Ticket) for answer in answers) == OPEN_UPLOADS == await desk.rows()


async def test_sweep_leaves_what_is_in_use(desk: Desk) -> None:
    waiting, heard = await desk.issue(), await desk.issue()
    names = [await desk.upload(ticket) for ticket in (waiting, heard)]
    await desk.consume(heard.id)
    await pass_time(desk.database, AT_WORK_S - SLACK_S)
    await desk.store.sweep()
    assert [await desk.blobs.exists(name) for name in names] == [True, True]
    assert await desk.rows() == 2


async def test_sweep_finishes_what_a_crash_left(desk: Desk) -> None:
    heard, forgotten = await desk.issue(), await desk.issue()
    heard_blob, forgotten_blob = [await desk.upload(ticket) for ticket in (heard, forgotten)]
    # Bytes of a PUT that died after they were stored and before that was recorded.
    orphan = forgotten.new_blob()
    await desk.blobs.put(orphan, b"sound")
    await desk.consume(heard.id)
    await pass_time(desk.database, AT_WORK_S)
    await desk.store.sweep()
    assert [await desk.blobs.exists(name) for name in (heard_blob, forgotten_blob, orphan)] == [False, True, True]
    # The row stays as long as its address: another PUT could still leave bytes.
    assert await desk.rows() == 2
    late = heard.new_blob()
    await desk.blobs.put(late, b"sound")
    await pass_time(desk.database, UPLOAD_S - SLACK_S)
    await desk.store.sweep()
    assert await desk.rows() == 2
    await pass_time(desk.database, SLACK_S)
    await desk.store.sweep()
    assert [await desk.blobs.exists(name) for name in (late, forgotten_blob, orphan)] == [False, False, False]
    assert await desk.rows() == 0


async def test_one_failing_row_never_stops_the_others(desk: Desk) -> None:
    broken = BrokenBlobs(desk.blobs)
    desk.store = Tickets(desk.database, broken)
    made = [await desk.issue() for _ in range(4)]
    names = [await desk.upload(ticket) for ticket in made]
    broken.broken = {made[0].name, made[2].name}
    await pass_time(desk.database, UPLOAD_S + AT_WORK_S)
    await desk.store.sweep()
    assert [await desk.blobs.exists(name) for name in names] == [True, False, True, False]
    assert await desk.rows() == 2
    broken.broken = set()
    await desk.store.sweep()
    assert await desk.rows() == 2
    await pass_time(desk.database, SWEEP_AGAIN_S)
    await desk.store.sweep()
    assert [await desk.blobs.exists(name) for name in names] == [False] * 4
    assert await desk.rows() == 0


async def test_discarding_never_fails_a_transcription(desk: Desk) -> None:
    broken = BrokenBlobs(desk.blobs)
    desk.store = Tickets(desk.database, broken)
    ticket = await desk.issue()
    blob = await desk.upload(ticket)
    broken.broken = {ticket.name}
    await desk.store.discard(await desk.consume(ticket.id))
    assert await desk.blobs.exists(blob)


async def test_many_that_fail_do_not_block_a_sweep(desk: Desk) -> None:
    broken = BrokenBlobs(desk.blobs)
    desk.store = Tickets(desk.database, broken)
    broken.broken = {(await desk.issue()).name for _ in range(SWEPT_AT_ONCE)}
    await pass_time(desk.database, 1)
    await desk.issue()
    await pass_time(desk.database, UPLOAD_S + AT_WORK_S)
    await desk.store.sweep()
    assert await desk.rows() == SWEPT_AT_ONCE


async def test_what_is_no_id_is_not_looked_for(desk: Desk) -> None:
    for name in ("", "upl_", "upl_" + "a" * 25, "upl_" + "a" * 27, "upl_" + "A" * 26, "upl_1" + "a" * 25):
        assert ID_PATTERN.fullmatch(name) is None
        assert await desk.store.find(name) is None
