"""Money that is held, topped up and billed within limits, thousands who race for one, and budgets that renew by month.

Months go by a clock of the database that stands until a test moves it.
"""

import asyncio
from argparse import Namespace
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Connection, Row, select

from contract.access import Caller
from contract.errors import ApiError
from state.accounts import organisations
from state.accounts.authentication import Accounts
from state.billing import audit, months
from state.billing.ledger import Ledger
from state.billing.months import iso_s, month_at, zone_of
from state.billing.reservation import Reservation
from state.cli.commands import budget_set
from state.database.base import Database, now_s
from state.database.open import open_database
from state.database.tables import usage_lines
from tests.state.books import SLACK_S, fault_of, line_count, make_caller, money, opened, reserve, set_limit
from tests.state.doubles import VirtualTime
from tests.state.test_accounts import pepper

Faults = dict[tuple[int | None, int | None, int], str | None]

RESERVATIONS: Faults = {
    (100, None, 99): None,
    (100, None, 100): None,
    (100, None, 101): "ORG_SPEND_LIMIT",
    (10, 100, 11): "ORG_SPEND_LIMIT",
    (100, 10, 11): "USER_SPEND_LIMIT",
    (None, 10, 11): "USER_SPEND_LIMIT",
    (0, None, 0): "ORG_SPEND_LIMIT",  # a limit of zero forbids every billed request
    (0, None, 1): "ORG_SPEND_LIMIT",
}
"""Limits of organisation and user, micro-EUR to be held, and the fault."""

ROOM: Faults = {
    (None, None, 0): None,
    (0, None, 0): "ORG_SPEND_LIMIT",
    (1, None, 0): None,
    (1, None, 1): "ORG_SPEND_LIMIT",
    (5, 0, 0): "USER_SPEND_LIMIT",
    (5, 1, 0): None,
    (None, 1, 1): "USER_SPEND_LIMIT",
    (0, 0, 0): "ORG_SPEND_LIMIT",
}
"""Limits, micro-EUR that are held already, and the fault of what costs nothing."""


async def test_a_reservation_fits_up_to_the_limit_and_the_fault_says_whose_it_is(database: Database) -> None:
    ledger, found = Ledger(database), Faults()
    for org_limit, user_limit, micro_eur in RESERVATIONS:
        caller = await make_caller(database, org_limit, user_limit, org=f"org-{len(found)}")
        fault = await fault_of(reserve(ledger, caller, micro_eur))
        found[org_limit, user_limit, micro_eur] = fault
        assert await money(database, caller) == (0, 0 if fault else micro_eur)
    assert found == RESERVATIONS


async def test_room_is_required_of_what_costs_nothing(database: Database) -> None:
    ledger, found = Ledger(database), Faults()
    for org_limit, user_limit, held in ROOM:
        caller = await make_caller(database, org_limit, user_limit, org=f"org-{len(found)}")
        if held:
            await reserve(ledger, caller, held)
        found[org_limit, user_limit, held] = await fault_of(ledger.require_funds(caller))
        assert await money(database, caller) == (0, held)
    assert found == ROOM


async def test_settling_moves_money_and_writes_one_line(database: Database) -> None:
    caller, ledger = await make_caller(database, 100, 100), Ledger(database)
    hold = await reserve(ledger, caller, 60)
    assert await hold.settle(42, quantity=310, unit="tokens") == 42
    assert await money(database, caller) == (42, 0)
    line = await database.run(lambda connection: connection.execute(select(usage_lines)).one())
    assert (line.request_id, line.line, line.model, line.recovered) == ("req-1", "chat:m", "m", 0)
    assert 0 <= await database.run(now_s) - line.at_ms // 1000 < SLACK_S
    assert (line.quantity, line.unit, line.cost_micro_eur, line.user_id) == (310, "tokens", 42, caller.user_id)


async def test_settling_twice_and_together_bills_once(database: Database) -> None:
    caller, ledger = await make_caller(database, 1000), Ledger(database)
    hold = await reserve(ledger, caller, 50)
    assert await asyncio.gather(*(hold.settle(40, 1, "tokens") for _ in range(20)), hold.settle(7, 1, "t")) == [40] * 21
    await hold.void()
    assert await money(database, caller) == (40, 0)
    hold = await reserve(ledger, caller, 960)
    await asyncio.gather(hold.void(), hold.void())
    assert await hold.settle(40, 1, "tokens") == 0
    assert await money(database, caller) == (40, 0)
    assert await line_count(database) == 1


@pytest.mark.parametrize("limit", [None, 1000])
async def test_no_request_id_escapes_its_bill(database: Database, limit: int | None) -> None:
    caller, spent = await make_caller(database, limit), 0
    for request_id in ("a\0b", "\ud800", "x" * 100_000, "", "🔑'; DROP TABLE usage_lines;--"):
        ledger, spent = Ledger(database), spent + 9
        hold = await reserve(ledger, caller, 9, request_id)
        await hold.settle(9, 1, "tokens")
        await ledger.close()
        assert await money(database, caller) == (spent, 0), request_id


@pytest.mark.parametrize("is_marked", [False, True], ids=["no row yet", "a row that holds nothing"])
@pytest.mark.usefixtures("marks_at_once")
async def test_a_limit_that_is_set_holds_for_what_was_begun_without_one(database: Database, is_marked: bool) -> None:
    for micro_eur, fault in ((99, None), (100, None), (101, "ORG_SPEND_LIMIT")):
        caller, ledger = await make_caller(database, org=f"org-{micro_eur}"), Ledger(database)
        hold = await reserve(ledger, caller, 5)
        hold.note(30, 30, "tokens")
        if is_marked:
            await ledger.mark()
        await set_limit(database, caller, 100)
        for _ in range(2):  # it is held once
            assert await fault_of(hold.limit(replace(caller, org_limited=True), micro_eur)) == fault
            assert await money(database, caller) == (0, 0 if fault else micro_eur)
        await hold.settle(30, 30, "tokens")
        assert await money(database, caller) == (30, 0)


async def test_an_end_while_a_new_limit_is_looked_at_leaves_nothing_held(database: Database) -> None:
    caller, ledger = await make_caller(database), Ledger(database)
    hold = await reserve(ledger, caller, 5)
    hold.note(30, 30, "tokens")
    await set_limit(database, caller, 100)
    limiting = asyncio.create_task(hold.limit(replace(caller, org_limited=True), 50))
    await asyncio.sleep(0)
    limiting.cancel()
    await hold.settle(30, 30, "tokens")
    await ledger.close()
    assert await money(database, caller) == (30, 0)


async def test_a_thousand_requests_race_for_a_small_budget(database_url: str) -> None:
    # By default thousands that wait would get 503 after 4 s.
    patient = await open_database(database_url, wait_s=120)
    caller, ledger = await make_caller(patient, 400_000), Ledger(patient)
    holds = (reserve(ledger, caller, 700, f"r{number}") for number in range(1000))
    answers = await asyncio.gather(*holds, return_exceptions=True)
    won = [answer for answer in answers if isinstance(answer, Reservation)]
    assert len(won) == 400_000 // 700
    assert {answer.fault.name for answer in answers if isinstance(answer, ApiError)} == {"ORG_SPEND_LIMIT"}
    await asyncio.gather(*(hold.settle(699, 1, "tokens") if at % 2 else hold.void() for at, hold in enumerate(won)))
    spent = 699 * (len(won) // 2)
    assert (await money(patient, caller), await line_count(patient)) == ((spent, 0), len(won) // 2)
    await reserve(ledger, caller, 400_000 - spent)  # the last micro-EUR
    await patient.close()


BERLIN = "Europe/Berlin"


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
    """The spent and the held amount, once the books were proved to add up."""
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
    for moment, counts in (("2026-04-30T23:59:59", 60), ("2026-05-01T00:00:00", 0)):  # of the month that a bill began
        await time.set(at(moment))
        assert await spent(time, caller) == (counts, 0)
    # Nobody asked for anything in the months between.
    await time.set(at("2026-12-31T12:00:00"))
    assert await spent(time, caller) == (0, 0)
    renewal = (await Accounts(time.database, pepper()).describe(caller))["spend"]["organisation"]["renewal"]
    month = {"since": "2026-11-30T23:00:00Z", "until": "2026-12-31T23:00:00Z"}
    assert renewal == {"every": "month", "time_zone": BERLIN} | month


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


async def test_no_budget_is_locked_while_usage_lines_are_summed(postgres_url: str) -> None:
    async with opened(postgres_url, 1) as (database,):
        caller, options = await make_caller(database, 1000), {"org": "acme", "user": None, "limit_micro_eur": 900}
        setting = Namespace(**options, every="month", time_zone=None)

        def lock(connection: Connection) -> None:
            connection.exec_driver_sql("LOCK TABLE usage_lines IN ACCESS EXCLUSIVE MODE")
            connection.exec_driver_sql("SELECT pg_sleep(2)")

        locking = asyncio.create_task(database.run(lock))
        await asyncio.sleep(0.5)
        summing = asyncio.create_task(database.run(partial(budget_set, options=setting, _home=Path())))
        await asyncio.sleep(0.5)
        await reserve(Ledger(database), caller, 10)
        assert not locking.done()
        assert "a limit of 900 micro-EUR every month (UTC)" in await summing
        await locking


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
