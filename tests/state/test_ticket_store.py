"""The store of tickets: ids, races of many processes, and a sweep of which some deletions fail.

Histories of uploads by HTTP: `test_tickets.py`.
"""

import asyncio
from typing import Any

import pytest

from contract.access import Caller
from contract.errors import ApiError
from contract.limits import OPEN_UPLOADS, UPLOAD_S
from state.blobs.base import Blobs
from state.database.base import Database
from state.database.tables import tickets
from state.tickets import AT_WORK_S, SWEPT_AT_ONCE, Ticket, Tickets
from tests.state.books import fault_of, make_caller, opened, pass_time, rows
from tests.state.doubles import BrokenBlobs, VirtualTime


@pytest.fixture
def store(database: Database, blobs: Blobs) -> Tickets:
    return Tickets(database, blobs)


async def issued(store: Tickets, caller: Caller) -> Ticket:
    return await store.issue(caller, "audio/webm", 1000)


async def test_ids_cannot_be_guessed_and_blobs_are_new_for_each_put(store: Tickets, caller: Caller) -> None:
    made = [await issued(store, caller) for _ in range(20)]
    assert len({ticket.id[:12] for ticket in made}) == 20
    assert len({made[0].new_blob() for _ in range(20)}) == 20
    assert made[0].new_blob().startswith(f"{made[0].name}/")


async def test_of_many_processes_one_gives_a_ticket_its_recording_and_one_uses_it(
    database: Database, database_url: str, blobs: Blobs
) -> None:
    async with opened(database_url, 5) as replicas:
        caller = await make_caller(replicas[0])
        stores = [Tickets(replica, blobs) for replica in replicas] * 10
        for _ in range(10):
            ticket = await issued(stores[0], caller)
            names = [ticket.new_blob() for _ in stores]
            won = await asyncio.gather(*(s.uploaded(ticket.id, n) for s, n in zip(stores, names, strict=True)))
            using = (store.consume(caller.org_id, ticket.id) for store in stores)
            answers = await asyncio.gather(*using, return_exceptions=True)
            assert [answer.blob for answer in answers if isinstance(answer, Ticket)] == [names[won.index(True)]]
            refused = [answer.fault.name for answer in answers if isinstance(answer, ApiError)]
            assert (won.count(True), refused) == (1, ["NOT_FOUND"] * 49)


@pytest.mark.parametrize(("beyond_s", "is_kept"), [(-1, True), (0, False), (1, False)])
async def test_what_a_used_ticket_left_is_swept_at_its_second(
    virtual: VirtualTime, blobs: Blobs, beyond_s: int, is_kept: bool
) -> None:
    store, caller = Tickets(virtual.database, blobs), await make_caller(virtual.database)
    ticket = await issued(store, caller)
    blob = ticket.new_blob()
    await blobs.put(blob, b"sound")
    await store.uploaded(ticket.id, blob)
    await store.consume(caller.org_id, ticket.id)
    await virtual.set(virtual.now_s + AT_WORK_S + beyond_s)
    await store.sweep()
    assert await blobs.exists(blob) == is_kept


async def test_many_at_once_never_pass_the_limit(store: Tickets, caller: Caller) -> None:
    asking = (issued(store, caller) for _ in range(OPEN_UPLOADS + 30))
    answers = await asyncio.gather(*asking, return_exceptions=True)
    assert sum(isinstance(answer, Ticket) for answer in answers) == OPEN_UPLOADS


async def test_many_that_fail_do_not_block_a_sweep(database: Database, blobs: Blobs, caller: Caller) -> None:
    broken: Any = BrokenBlobs(blobs)
    store = Tickets(database, broken)
    broken.broken = {(await issued(store, caller)).name for _ in range(SWEPT_AT_ONCE)}
    await pass_time(database, 1)
    await issued(store, caller)
    await pass_time(database, UPLOAD_S + AT_WORK_S)
    await store.sweep()
    assert await rows(database, tickets) == SWEPT_AT_ONCE


async def test_what_is_no_id_is_not_looked_for(store: Tickets) -> None:
    for rest in ("", "a" * 25, "a" * 27, "A" * 26, "1" + "a" * 25, "a" * 26 + "\0", "\ud800"):
        name = f"upl_{rest}"
        assert await store.find(name) is None
        assert await fault_of(store.consume(1, name)) == "NOT_FOUND"
