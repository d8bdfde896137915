"""Budgets that renew by month, on a clock of the database that stands until a test moves it."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, Row, select

from contract.access import Caller
from state.accounts import organisations
from state.billing import audit, months
from state.billing.ledger import Ledger
from state.billing.months import iso_s, month_at, zone_of
from state.billing.postings import LEASE_S
from state.billing.reservation import Reservation
from state.database.base import Database, now_s
from state.database.tables import usage_lines
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
    assert await fault_of(ledger.require_room(caller)) == "ORG_SPEND_LIMIT"
    # Two hours before that of UTC.
    await time.set(at("2026-04-01T00:00:00"))
    assert await spent(time, caller) == (0, 0)
    await ledger.require_room(caller)
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


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("reserve"), st.integers(1, 400)),
        st.tuples(st.just("reserve"), st.integers(1, 20)),
        st.tuples(st.just("settle"), st.integers(0, 500)),
        st.tuples(st.just("void"), st.integers(0, 9)),
        st.tuples(st.just("note"), st.integers(1, 300)),
        st.tuples(st.just("tend"), st.just(0)),
        st.tuples(st.just("die"), st.just(0)),
        st.tuples(st.just("pass"), st.sampled_from([1, 3600, 86_400, 10 * 86_400, 70 * 86_400])),
        st.tuples(st.just("pass to the boundary"), st.sampled_from([-1, 0, 1])),
    ),
    min_size=4,
    max_size=40,
)


class History:
    """A ledger on a virtual clock beside an oracle: what was charged in which month, and what is open."""

    def __init__(self, time: VirtualTime, caller: Caller, limits: dict[str | None, tuple[int, str]]) -> None:
        self.time = time
        self.caller = caller
        self.limits = limits
        self.ledger = Ledger(time.database)
        self.open: list[Reservation] = []
        self.charged: defaultdict[tuple[str | None, int], int] = defaultdict(int)

    def _month(self, whose: str | None) -> tuple[int, int]:
        return month_at(self.time.now_s, ZoneInfo(self.limits[whose][1]))

    def _count(self, micro_eur: int) -> None:
        for whose in self.limits:
            self.charged[whose, self._month(whose)[0]] += micro_eur

    def _room(self) -> int:
        taken = sum(hold.held_micro_eur for hold in self.open)
        return min(limit - self.charged[of, self._month(of)[0]] - taken for of, (limit, _) in self.limits.items())

    async def step(self, kind: str, number: int) -> None:
        hold = self.open[number % len(self.open)] if self.open else None
        if kind == "reserve":
            await self._reserve(number)
        elif kind == "settle" and hold:
            self.open.remove(hold)
            self._count(await hold.settle(number, 1, "tokens"))
        elif kind == "void" and hold:
            self.open.remove(hold)
            await hold.void()
        elif kind == "note" and hold:
            hold.note(number, 1, "tokens")
            await self.ledger.mark()
        elif kind == "tend":
            await self.ledger.tend()
        elif kind == "pass":
            await self.time.set(self.time.now_s + number)
        elif kind == "pass to the boundary":
            await self.time.set(max(self.time.now_s, self._month(None)[1] + number))
        elif kind == "die":
            await self._die()

    async def _reserve(self, micro_eur: int) -> None:
        room = self._room()
        fault = None
        try:
            self.open.append(await reserve(self.ledger, self.caller, micro_eur))
        except Exception as error:
            fault = error
        assert (fault is None) == (micro_eur <= room), (micro_eur, room, fault)

    async def _die(self) -> None:
        ids = [hold.entry.id for hold in self.open]
        self.open.clear()
        self.ledger = Ledger(self.time.database)
        await self.time.set(self.time.now_s + 2 * LEASE_S)
        await self.ledger.reap()
        query = select(usage_lines.c.cost_micro_eur).where(usage_lines.c.reservation_id.in_(ids))
        self._count(sum(await self.time.database.run(lambda connection: list(connection.execute(query).scalars()))))

    async def check(self) -> None:
        assert await self.time.database.run(audit.faults) == []
        rows = await budget_rows(self.time.database, self.caller)
        for whose, (limit, _) in self.limits.items():
            row = rows[whose]
            assert row.spent_micro_eur == self.charged[whose, self._month(whose)[0]]
            assert row.spent_micro_eur + row.held_micro_eur <= limit
        assert all(total <= self.limits[whose][0] for (whose, _), total in self.charged.items())


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=STEPS, limits=st.tuples(st.integers(100, 8000), st.integers(100, 8000)), zones=st.permutations(ZONES))
async def test_no_history_spends_more_in_a_month_than_its_limit(
    history_url: str, steps: list[tuple[str, int]], limits: tuple[int, int], zones: list[str]
) -> None:
    await _live(history_url, steps, {None: (limits[0], zones[0]), "eve": (limits[1], zones[1])})


async def _live(url: str, steps: list[tuple[str, int]], limits: dict[str | None, tuple[int, str]]) -> None:
    time = await VirtualTime.over(url, at("2026-03-20T12:00:00"))
    organisation = f"acme-{await time.database.run(_organisations)}"
    caller = await make_caller(time.database, limits[None][0], limits["eve"][0], org=organisation)
    for user_id, whose in ((None, None), (caller.user_id, "eve")):
        zone = limits[whose][1]
        await time.database.run(partial(months.set_renewal, org_id=caller.org_id, user_id=user_id, time_zone=zone))
    history = History(time, caller, limits)
    for step in steps:
        await history.step(*step)
        await history.check()
    await history.ledger.close()
    await time.database.close()


def _organisations(connection: Connection) -> int:
    return len(organisations.all_rows(connection))


@pytest.fixture
async def history_url(database_url: str, database: Database, marks_at_once: None) -> str:
    """A database with its schema, in which each history has an organisation of its own."""
    return database_url


async def test_the_clock_of_these_tests_is_that_of_the_database(time: VirtualTime) -> None:
    for moment in (0, at("2026-03-29T02:59:59"), at("2099-12-31T23:59:59")):
        await time.set(moment)
        assert await time.database.run(now_s) == moment
        assert datetime.fromtimestamp(await time.database.run(now_s), UTC).timestamp() == moment
