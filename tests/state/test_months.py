"""Budgets that renew by month, on a clock of the database that stands until a test moves it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Row

from contract.access import Caller
from state.accounts import organisations
from state.billing import audit, months
from state.billing.ledger import Ledger
from state.billing.months import iso_s, month_at, zone_of
from state.billing.reservation import Reservation
from state.database.base import Database, now_s
from tests.state.books import fault_of, make_caller, opened, reserve
from tests.state.doubles import VirtualTime

BERLIN = "Europe/Berlin"
ZONES = (BERLIN, "America/New_York", "Asia/Kolkata", "UTC")


def at(text: str, zone: str = BERLIN) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp())


@pytest.fixture
async def time(database_url: str, database: Database) -> AsyncIterator[VirtualTime]:
    """The 20th of March 2026 at noon in Berlin, on each kind of database."""
    virtual = await VirtualTime.over(database_url, at("2026-03-20T12:00:00"))
    yield virtual
    await virtual.database.close()


async def renewing(time: VirtualTime, limit: int, zone: str = BERLIN, **of: Any) -> Caller:
    caller = await make_caller(time.database, limit, **of)
    await time.database.run(partial(months.set_renewal, org_id=caller.org_id, user_id=None, time_zone=zone))
    return caller


async def budget_rows(database: Database, caller: Caller) -> dict[str | None, Row[Any]]:
    rows = await database.run(lambda connection: organisations.list_budgets(connection, caller.org_id))
    return {row.user: row for row in rows}


async def spent(time: VirtualTime, caller: Caller) -> tuple[int, int]:
    """What counts as spent, and what is held, once the books were proved to add up."""
    assert await time.database.run(audit.faults) == []
    row = (await budget_rows(time.database, caller))[None]
    return row.spent_micro_eur, row.held_micro_eur


@given(zone=st.sampled_from(sorted(available_timezones())), at_s=st.integers(0, at("2100-01-01T00:00:00")))
def test_a_month_is_from_its_first_moment_to_that_of_the_next(zone: str, at_s: int) -> None:
    place = zone_of(zone)
    since_s, until_s = month_at(at_s, place)
    assert since_s <= at_s < until_s
    here, first, last = (datetime.fromtimestamp(moment, place) for moment in (at_s, since_s, until_s - 1))
    assert (first.year, first.month) == (last.year, last.month) == (here.year, here.month)
    assert month_at(until_s, place)[0] == until_s
    before = datetime.fromtimestamp(since_s - 1, place)
    assert (before.year, before.month) != (first.year, first.month)


@pytest.mark.parametrize(
    ("day", "hours"),
    [("2026-03-20T12:00:00", 31 * 24 - 1), ("2026-10-20T12:00:00", 31 * 24 + 1), ("2026-11-20T12:00:00", 30 * 24)],
)
def test_a_month_in_which_clocks_change_has_an_hour_less_or_more(day: str, hours: int) -> None:
    since_s, until_s = month_at(at(day), zone_of(BERLIN))
    assert until_s - since_s == hours * 3600
    assert iso_s(until_s, zone_of(BERLIN))[8:19] == "01T00:00:00"


async def test_what_was_spent_counts_up_to_the_first_moment_of_the_next_month_of_its_zone(time: VirtualTime) -> None:
    caller, ledger = await renewing(time, 100), Ledger(time.database)
    await (await reserve(ledger, caller, 100)).settle(100, 1, "tokens")
    await time.set(at("2026-03-31T23:59:59"))
    assert await fault_of(reserve(ledger, caller, 1)) == "ORG_SPEND_LIMIT"
    assert await fault_of(ledger.require_funds(caller)) == "ORG_SPEND_LIMIT"
    # Two hours before that of UTC.
    await time.set(at("2026-04-01T00:00:00"))
    assert await spent(time, caller) == (0, 0)
    await ledger.require_funds(caller)
    await (await reserve(ledger, caller, 100)).settle(60, 1, "tokens")
    assert await spent(time, caller) == (60, 0)
    assert await fault_of(reserve(ledger, caller, 41)) == "ORG_SPEND_LIMIT"
    # Nobody asked for anything in the months between.
    await time.set(at("2026-12-31T12:00:00"))
    assert await spent(time, caller) == (0, 0)
    row = (await budget_rows(time.database, caller))[None]
    assert iso_s(month_at(row.now_s, zone_of(BERLIN))[1], zone_of(BERLIN)) == "2027-01-01T00:00:00+01:00"


async def test_a_budget_that_is_made_to_renew_counts_this_month_from_its_usage_lines(time: VirtualTime) -> None:
    await time.set(at("2026-02-28T23:59:59"))
    caller, ledger = await make_caller(time.database, 1000, 1000), Ledger(time.database)
    await (await reserve(ledger, caller, 300)).settle(300, 1, "tokens")
    await time.set(at("2026-03-01T00:01:00"))
    await (await reserve(ledger, caller, 40)).settle(40, 1, "tokens")
    await ledger.close()
    for user_id, name in ((None, None), (caller.user_id, "eve")):
        change = partial(months.set_renewal, org_id=caller.org_id, user_id=user_id)
        for zone, counts in ((BERLIN, 40), (BERLIN, 40), ("UTC", 340), (None, 340), ("Asia/Tokyo", 340), (BERLIN, 40)):
            await time.database.run(partial(change, time_zone=zone))
            assert (await budget_rows(time.database, caller))[name].spent_micro_eur == counts, zone
            assert await time.database.run(audit.faults) == []


async def test_two_replicas_at_the_boundary_renew_once_and_share(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    time = await VirtualTime.over(postgres_url, at("2026-03-31T23:59:59"))
    async with opened(postgres_url, 2) as replicas:
        ledgers = [Ledger(database) for database in replicas]
        caller = await renewing(time, 1000)
        holds = [await reserve(ledgers[n % 2], caller, 100, f"r{n}") for n in range(10)]
        await time.set(at("2026-04-01T00:00:00"))
        charged = await asyncio.gather(*(hold.settle(60, 1, "tokens") for hold in holds))
        assert charged == [60] * 10
        answers = await asyncio.gather(
            *(reserve(ledgers[n % 2], caller, 100, f"s{n}") for n in range(20)), return_exceptions=True
        )
        assert sum(isinstance(answer, Reservation) for answer in answers) == 4
        assert await spent(time, caller) == (600, 400)
        for ledger in ledgers:
            await ledger.close()
    await time.database.close()


async def test_the_clock_of_these_tests_is_that_of_the_database(time: VirtualTime) -> None:
    for moment in (0, at("2026-03-29T02:59:59"), at("2099-12-31T23:59:59")):
        await time.set(moment)
        assert await time.database.run(now_s) == moment
        assert datetime.fromtimestamp(await time.database.run(now_s), UTC).timestamp() == moment
