"""Money that a process holds in advance: what it may be, who may have it, and what becomes of it."""

import asyncio

import pytest
from sqlalchemy import Connection, delete, select, update

from contract.errors import STATE_UNAVAILABLE, ApiError
from state import retries
from state.billing import audit, purse
from state.billing.ledger import Ledger
from state.billing.postings import LEASE_S
from state.billing.purse import REQUESTS, SHARE, UNUSED_TURNS
from state.database.base import Database
from state.database.tables import PURSE, budgets, reservations, usage_lines
from tests.state.books import (
    fault_of,
    line_count,
    make_caller,
    money,
    opened,
    pass_time,
    reserve,
    set_limit,
    until_money,
)
from tests.state.doubles import WatchedDatabase
from tests.waiting import until

LIMIT = 1_000_000
HELD = {
    LIMIT: 10 * REQUESTS,  # for so many requests
    None: 0,
    SHARE * 1000: 1000,  # no more than a sixteenth
    SHARE * 1000 - 1: 990,  # in whole requests
    SHARE * 20: 20,
    SHARE * 20 - 1: 10,  # less than two: what the request needs, by itself
}
"""Micro-EUR that are held for a request that needs 10, by the limit."""


async def test_a_purse_is_a_share_of_what_the_limit_leaves_and_near_the_limit_there_is_none(database: Database) -> None:
    for limit, held in HELD.items():
        caller, ledger = await make_caller(database, limit, org=f"org-{limit}"), Ledger(database)
        hold = await reserve(ledger, caller, 10)
        assert await money(database, caller) == (0, held), limit
        assert await database.run(audit.in_advance) == (held if hold.purse else 0)
        await hold.settle(10, 1, "tokens")
        await ledger.close()
        assert await money(database, caller) == (10, 0), limit


async def test_what_a_purse_holds_is_had_without_the_database(database: Database) -> None:
    watched = WatchedDatabase(database)
    caller, ledger = await make_caller(database, LIMIT, LIMIT), Ledger(watched)
    holds = [await reserve(ledger, caller, 10, f"r{n}") for n in range(100)]
    assert watched.ran == 1
    await asyncio.gather(*(hold.void() for hold in holds[50:]))
    assert await asyncio.gather(*(hold.settle(7, 1, "tokens") for hold in holds[:50])) == [7] * 50
    assert watched.ran == 2
    assert await money(database, caller) == (350, 10 * REQUESTS - 350)
    assert await line_count(database) == 50
    # What was voided, and what was held beyond its cost, is there for others.
    for number in range(REQUESTS - 35):
        await reserve(ledger, caller, 10, f"more-{number}")
    assert watched.ran == 2


async def test_a_cost_takes_what_was_held_then_the_purse_then_the_limit(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    for cost, left in ((9, 91), (10, 90), (11, 89), (100, 0), (101, 0), (1600, 0), (1601, 0)):
        caller, ledger = await make_caller(database, SHARE * 100, org=f"org-{cost}"), Ledger(database)
        hold = await reserve(ledger, caller, 10)
        charged = min(cost, SHARE * 100)
        assert await hold.settle(cost, 1, "tokens") == charged
        assert (f"cost {cost} micro-EUR, but the spend limit allowed" in caplog.text) == (cost > charged)
        assert await money(database, caller) == (charged, left)
        await ledger.close()
        assert await money(database, caller) == (charged, 0)


async def test_a_stream_tops_up_from_the_purse_and_to_the_last_of_the_limit(database: Database) -> None:
    watched = WatchedDatabase(database)
    caller, ledger = await make_caller(database, SHARE * 100), Ledger(watched)
    hold = await reserve(ledger, caller, 10)
    await hold.top_up(90)
    assert watched.ran == 1
    other = await reserve(ledger, caller, 10)
    assert other.purse
    await hold.top_up(SHARE * 100 - 110)
    assert await fault_of(hold.top_up(1)) == "ORG_SPEND_LIMIT"
    assert await money(database, caller) == (0, SHARE * 100)
    assert await hold.settle(SHARE * 100 - 10, 1, "tokens") == SHARE * 100 - 10
    assert await other.settle(10, 1, "tokens") == 10
    assert await money(database, caller) == (SHARE * 100, 0)


async def test_a_request_that_has_ended_takes_nothing_more_from_the_purse(database: Database) -> None:
    caller, ledger = await make_caller(database, LIMIT), Ledger(database)
    hold = await reserve(ledger, caller, 10)
    assert await hold.settle(5, 1, "tokens") == 5
    assert hold.purse
    free = hold.purse.free_micro_eur
    assert await fault_of(hold.top_up(5)) == "STATE_UNAVAILABLE"
    assert hold.purse.free_micro_eur == free


async def test_a_purse_that_nobody_uses_is_closed_and_what_is_under_way_keeps_its_money(database: Database) -> None:
    caller, ledger = await make_caller(database, LIMIT), Ledger(database)
    hold, ended = await reserve(ledger, caller, 10), await reserve(ledger, caller, 10)
    await ended.void()
    for _ in range(UNUSED_TURNS):
        await ledger.tend()
    assert await money(database, caller) == (0, 10 * REQUESTS)
    await ledger.tend()
    await until_money(database, caller, (0, 10))
    assert hold.purse is None
    await hold.settle(10, 1, "tokens")
    assert await money(database, caller) == (10, 0)


async def test_what_a_bug_has_lost_of_a_purse_is_free_again(database: Database) -> None:
    caller, ledger = await make_caller(database, LIMIT), Ledger(database)
    await reserve(ledger, caller, 10)
    for _ in range(purse.MAX_TURNS + 1):
        await (await reserve(ledger, caller, 10)).void()
        await ledger.tend()
    await until_money(database, caller, (0, 0))


@pytest.mark.parametrize("limit", [0, 9, 10, 2000, 7 * REQUESTS * 10 // 8])
async def test_a_limit_that_is_lowered_empties_full_purses_within_a_second(database: Database, limit: int) -> None:
    caller, ledgers = await make_caller(database, LIMIT), [Ledger(database) for _ in range(3)]
    holds = [await reserve(ledger, caller, 10) for ledger in ledgers]
    await set_limit(database, caller, limit)
    for closed, ledger in enumerate(ledgers, 1):
        await ledger.tend()
        await until_money(database, caller, (0, 10 * closed + 10 * REQUESTS * (3 - closed)))
    fault = "ORG_SPEND_LIMIT" if limit < 40 else None
    assert await fault_of(reserve(ledgers[0], caller, 10)) == fault
    assert [await hold.settle(10, 1, "tokens") for hold in holds] == [10, 10, 10]
    for ledger in ledgers:
        await ledger.close()
    assert await money(database, caller) == (30, 0)


@pytest.mark.usefixtures("marks_at_once")
async def test_the_purse_of_a_dead_process_ends_with_its_lease_and_only_unsettled_requests_are_lost(
    database: Database,
) -> None:
    caller, dead, alive = await make_caller(database, LIMIT), Ledger(database), Ledger(database)
    settled, stream, short = [await reserve(dead, caller, 10, name) for name in ("settled", "stream", "short")]
    kept = await reserve(alive, caller, 10)
    await settled.settle(10, 1, "tokens")
    stream.note(7, 3, "tokens")
    await dead.mark()
    await pass_time(database, LEASE_S - 30)
    await alive.renew()
    await pass_time(database, 31)
    # Its purse, its stream; the short request had no row.
    assert await alive.reap() == 2
    assert await kept.settle(10, 1, "tokens") == 10
    await alive.close()
    assert await money(database, caller) == (27, 0)
    lines = await database.run(lambda c: [*c.execute(select(usage_lines.c.request_id).order_by(usage_lines.c.id))])
    assert [row.request_id for row in lines] == ["settled", "stream", "req-1"]
    assert short.purse


async def test_a_process_that_outlived_its_lease_bills_what_the_limit_has_left(database: Database) -> None:
    caller, slow, other = await make_caller(database, LIMIT), Ledger(database), Ledger(database)
    holds = [await reserve(slow, caller, 10, f"r{n}") for n in range(5)]
    await pass_time(database, LEASE_S + 1)
    assert await other.reap() == 1
    await reserve(other, caller, LIMIT - 25)
    charged = await asyncio.gather(*(hold.settle(10, 1, "tokens") for hold in holds[:4]))
    assert sorted(charged) == [0, 5, 10, 10]
    # The purse is gone, and the database decides again.
    assert await fault_of(reserve(slow, caller, 1)) == "ORG_SPEND_LIMIT"
    assert await money(database, caller) == (25, LIMIT - 25)


@pytest.mark.usefixtures("marks_at_once")
async def test_a_purse_whose_row_was_lost_pays_for_no_mark_and_no_stream_is_lost(database: Database) -> None:
    # What a commit that failed after an early answer looks like.
    caller, ledger = await make_caller(database, LIMIT), Ledger(database)
    streams = [await reserve(ledger, caller, 10, f"r{n}") for n in range(2)]
    await database.run(lose_purse)
    for stream in streams:
        stream.note(8, 3, "tokens")
    await ledger.mark()
    assert [stream.held_micro_eur for stream in streams] == [0, 0]
    assert [await stream.settle(9, 3, "tokens") for stream in streams] == [9, 9]
    await reserve(ledger, caller, 10)
    assert await money(database, caller) == (18, 10 * REQUESTS)


def lose_purse(connection: Connection) -> None:
    is_purse = (reservations.c.line == PURSE) & (reservations.c.state == "held")
    (held,) = connection.execute(delete(reservations).where(is_purse).returning(reservations.c.held_micro_eur)).one()
    connection.execute(update(budgets).values(held_micro_eur=budgets.c.held_micro_eur - held))


async def test_a_purse_is_kept_until_its_last_bill(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "RETRY_S", 0.001)
    caller, away = await make_caller(database, LIMIT), WatchedDatabase(database)
    ledger = Ledger(away)
    hold = await reserve(ledger, caller, 10)
    away.fault = lambda _: STATE_UNAVAILABLE()
    assert await hold.settle(10, 1, "tokens") == 10
    await asyncio.gather(*ledger._purses.empty(caller.org_id))
    await pass_time(database, LEASE_S - 30)
    away.fault = lambda work: STATE_UNAVAILABLE() if "bills" in getattr(work, "keywords", {}) else None
    await ledger.renew()
    await pass_time(database, 31)
    assert await Ledger(database).reap() == 0
    away.fault = lambda _: None
    await until(lambda: not ledger.backlog)
    await ledger.close()
    await pass_time(database, LEASE_S + 1)
    await Ledger(database).reap()
    assert await money(database, caller) == (10, 0)


async def test_replicas_share_one_limit_exactly_while_their_purses_are_full(postgres_url: str) -> None:
    async with opened(postgres_url, 3) as replicas:
        caller = await make_caller(replicas[0], 100_000)
        ledgers = [Ledger(database) for database in replicas]

        async def customer(number: int) -> int:
            try:
                hold = await reserve(ledgers[number % 3], caller, 100, f"r{number}")
            except ApiError:
                return 0
            return await hold.settle(100, 1, "tokens")

        charged = await asyncio.gather(*(customer(number) for number in range(1500)))
        await money(replicas[0], caller)
        for ledger in ledgers:
            await ledger.close()
        assert await money(replicas[0], caller) == (sum(charged), 0)
        # Whoever lost lost to somebody else's money, not to a purse: all of the limit was had, but what each had last.
        assert sum(charged) == 100_000
