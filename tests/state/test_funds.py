"""Where the money of one request may be: the table of steps, and histories over a database that misbehaves."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, delete, select, update

from contract.errors import STATE_UNAVAILABLE, ApiError
from state.accounts import organisations
from state.billing import audit, postings, purse, upkeep
from state.billing import ledger as ledger_module
from state.billing.ledger import Ledger
from state.billing.postings import LEASE_S
from state.billing.reservation import TRANSITIONS, Funds, Reservation, Step
from state.database.base import Database
from state.database.tables import budgets, reservations, usage_lines
from tests.state.books import make_caller, money, pass_time, reserve
from tests.state.doubles import WatchedDatabase
from tests.waiting import until

HAS_PURSE = {Funds.PURSE, Funds.MOVING}
MAY_HAVE_ROW = {Funds.OPENING, Funds.MOVING, Funds.ROW}


def reachable(start: Funds) -> set[Funds]:
    places = {start}
    while more := {ends[place] for ends in TRANSITIONS.values() for place in places & ends.keys()} - places:
        places |= more
    return places


def test_every_place_is_reached_and_a_row_is_never_forgotten() -> None:
    assert reachable(Funds.NONE) == set(Funds)
    for place in MAY_HAVE_ROW:
        assert reachable(place) <= MAY_HAVE_ROW
        assert Funds.ROW in reachable(place)
    assert reachable(Funds.ROW) == {Funds.ROW}, "what is known stays known"
    assert TRANSITIONS.keys() == set(Step)


@pytest.mark.parametrize(("place", "step"), [*product(Funds, Step)])
def test_money_moves_as_the_table_says_or_not_at_all(place: Funds, step: Step) -> None:
    giver = purse.Purse((1, None))
    hold = _at(place, giver)
    if place not in TRANSITIONS[step]:
        with pytest.raises(KeyError):
            hold.move(step)
        assert hold.funds is place
        return
    hold.move(step, giver if step is Step.TAKE else None)
    assert (hold.purse is giver) == (hold.funds in HAS_PURSE)
    assert hold.may_have_row == (hold.funds in MAY_HAVE_ROW)
    assert hold.held_micro_eur == (0 if step is Step.LOSE else 10)


def _at(place: Funds, giver: purse.Purse) -> Reservation:
    hold = Reservation.__new__(Reservation)
    hold.funds, hold.held_micro_eur, hold.marked = place, 10, None
    hold.purse = giver if place in HAS_PURSE else None
    return hold


FATES = ("waits", "fails", "is forgotten", "fine")
KINDS = (postings.reserve, purse.fill, upkeep.mark, postings.top_up, postings.settle, postings.void)


class MoodyDatabase(WatchedDatabase):
    """A database that fails transactions, commits and loses the answer, or lets them wait until `released` is set.

    Attributes:
        fates: of the next transactions, by function.
        running: transactions that are under way, those that wait not among them.
    """

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.fates: dict[Any, str] = {}
        self.running = 0
        self.released = asyncio.Event()

    async def run(self, transaction: Any, **how: Any) -> Any:
        fate = self.fates.get(getattr(transaction, "func", None), "fine")
        if fate == "waits":
            await self.released.wait()
        if fate == "fails":
            raise STATE_UNAVAILABLE()
        self.running += 1
        try:
            result = await super().run(transaction, **how)
        finally:
            self.running -= 1
        if fate == "is forgotten":
            raise STATE_UNAVAILABLE()
        return result

    def heal(self) -> None:
        self.fates.clear()
        self.released.set()
        self.released = asyncio.Event()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("reserve"), st.just(0), st.sampled_from([5, 1, 20, 100, 3000])),
        st.tuples(st.sampled_from(["note and mark", "top up", "settle"]), st.integers(0, 3), st.integers(1, 60)),
        st.tuples(
            st.sampled_from(["void", "tend", "close purses", "lose purses", "heal"]), st.integers(0, 3), st.just(0)
        ),
        st.tuples(st.just("fate"), st.integers(0, len(KINDS) - 1), st.integers(0, len(FATES) - 1)),
        st.tuples(st.just("at once"), st.just(0), st.just(0)),
    ),
    min_size=5,
    max_size=30,
)
MOODS = st.dictionaries(st.sampled_from(KINDS), st.sampled_from(FATES), max_size=3)


class History:
    """Requests of one organisation, whose client does the next thing before the one before has ended.

    Attributes:
        holds: requests that have begun.
        ending: those that a client has ended; settled: those among them that are to be billed.
        lost: purses whose row was taken away.
        is_hasty: the next step comes without waiting for what is under way.
        is_calm: nothing has failed, things have only been slow.
    """

    def __init__(self, database: Database, caller: Any, moods: dict[Any, str]) -> None:
        self.database, self.caller = database, caller
        self.moody = MoodyDatabase(database)
        self.moody.fates |= moods
        self.is_calm = {"fails", "is forgotten"}.isdisjoint(moods.values())
        self.ledger = Ledger(self.moody)
        self.purses, self.unposted = self.ledger._purses, self.ledger._unposted
        self.holds: list[Reservation] = []
        self.ending: set[str] = set()
        self.settled: set[str] = set()
        self.lost: set[str] = set()
        self.tasks: list[asyncio.Task[Any]] = []
        self.is_hasty = False

    async def step(self, kind: str, number: int, amount: int) -> None:
        ongoing = [hold for hold in self.holds if hold.entry.id not in self.ending]
        hold = ongoing[number % len(ongoing)] if ongoing else None
        if kind == "reserve":
            self.spawn(self._reserve(amount))
        elif kind == "fate":
            self.moody.fates[KINDS[number]] = FATES[amount]
            self.is_calm &= FATES[amount] not in ("fails", "is forgotten")
        elif kind == "heal":
            self.moody.heal()
        elif kind == "tend":
            self.spawn(self.ledger.tend())
        elif kind == "close purses":
            self.purses.empty(self.caller.org_id)
        elif kind == "lose purses":
            await self._lose()
            self.is_calm = False
        elif hold and kind == "note and mark":
            hold.note(hold.used.cost_micro_eur + amount, 1, "tokens")
            self.spawn(self.ledger.mark())
        elif hold and kind == "top up":
            self.spawn(hold.top_up(amount))
        elif hold and kind == "settle":
            self.ending.add(hold.entry.id)
            self.settled.add(hold.entry.id)
            self.spawn(hold.settle(amount, 1, "tokens"))
        elif hold and kind == "void":
            self.ending.add(hold.entry.id)
            self.spawn(hold.void())
        if kind == "at once" or self.is_hasty:
            self.is_hasty = kind == "at once"
            return
        await self.quiet()
        await self.check()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        self.tasks.append(asyncio.create_task(work))

    async def quiet(self) -> None:
        for _ in range(8):
            await until(lambda: not self.moody.running)
            await asyncio.sleep(0)

    async def _reserve(self, amount: int) -> None:
        self.holds.append(await reserve(self.ledger, self.caller, amount, f"r{len(self.holds)}"))

    async def _lose(self) -> None:
        """Takes the rows of all purses away, as a commit does that fails after it was answered."""
        ids = self.purses.ids

        def transaction(connection: Connection) -> None:
            rows = connection.execute(delete(reservations).where(reservations.c.id.in_(ids)).returning(reservations))
            total = sum(row.held_micro_eur for row in rows if row.state == "held")
            of = budgets.c.org_id == self.caller.org_id
            connection.execute(update(budgets).where(of).values(held_micro_eur=budgets.c.held_micro_eur - total))

        await self.quiet()
        await self.database.run(transaction)
        self.lost |= ids

    def in_memory(self) -> tuple[object, dict[str, int], object]:
        holds = [(hold.funds, hold.held_micro_eur, hold.has_ended) for hold in self.holds]
        purses = {purse.entry.id: purse.free_micro_eur for purse in self.purses._purses.values()}
        return holds, purses, set(self.unposted)

    async def check(self) -> None:
        def transaction(connection: Connection) -> tuple[dict[str, Any], set[str]]:
            assert audit.faults(connection) == []
            rows = connection.execute(select(reservations))
            lines = connection.execute(select(usage_lines.c.reservation_id))
            return {row.id: row for row in rows}, set(lines.scalars())

        # The ledger works on its own, too: what was read counts if nothing in memory has moved meanwhile.
        for _ in range(50):
            before = self.in_memory()
            rows, lines = await self.database.run(transaction)
            if self.in_memory() == before:
                break
            await self.quiet()
        promised = dict(before[1])
        for hold in self.holds:
            assert (hold.purse is not None) == (hold.funds in HAS_PURSE)
            row = rows.get(hold.entry.id)
            if hold.has_ended:
                continue
            assert hold.funds in MAY_HAVE_ROW or row is None
            assert hold.funds is not Funds.ROW or row.held_micro_eur >= hold.held_micro_eur
            assert hold.held_micro_eur == 0 or hold.funds not in (Funds.NONE, Funds.OPENING)
            if hold.purse and row is None and hold.purse.entry.id in promised:
                promised[hold.purse.entry.id] += hold.held_micro_eur
        for bill, _ in self.unposted.values():
            if bill.purse_id in promised and bill.entry.id not in lines and bill.entry.id not in rows:
                promised[bill.purse_id] += bill.covered_micro_eur
        for id, total in promised.items():
            if total and id not in self.lost:
                assert rows[id].held_micro_eur >= total, "a purse promises no more than its row holds"

    async def end(self) -> None:
        self.moody.heal()
        await self.quiet()
        for hold in self.holds:
            if hold.entry.id not in self.ending:
                self.settled.add(hold.entry.id)
                self.spawn(hold.settle(3, 1, "tokens"))
        self.moody.heal()
        outcomes = await asyncio.gather(*self.tasks, return_exceptions=True)
        assert all(isinstance(outcome, ApiError) for outcome in outcomes if isinstance(outcome, BaseException))
        await until(lambda: not self.unposted)
        await self.check()
        await self.ledger.close()
        if self.is_calm:
            assert (await money(self.database, self.caller))[1] == 0, "no lease has to expire"
        await pass_time(self.database, LEASE_S + 1)
        await Ledger(self.database).reap()
        lines = await self.database.run(lambda c: list(c.execute(select(usage_lines.c.reservation_id)).scalars()))
        assert self.settled <= set(lines), "whatever happened, each is billed"
        assert len(lines) == len(set(lines))
        assert (await money(self.database, self.caller))[1] == 0


@pytest.fixture
async def histories(database: Database, marks_at_once: None, monkeypatch: pytest.MonkeyPatch) -> Database:
    """A database in which each history has an organisation of its own, and retries come soon."""
    monkeypatch.setattr(ledger_module, "RETRY_S", 0.001)
    monkeypatch.setattr(ledger_module, "MAX_RETRY_S", 0.001)
    return database


@settings(max_examples=40, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(steps=STEPS, moods=MOODS, limit=st.sampled_from([100_000, 2_000, 40, None]))
async def test_no_history_loses_money_or_promises_it_twice(
    histories: Database, steps: list[tuple[str, int, int]], moods: dict[Any, str], limit: int | None
) -> None:
    number = len(await histories.run(organisations.all_rows))
    history = History(histories, await make_caller(histories, limit, org=f"acme-{number}"), moods)
    for step in steps:
        await history.step(*step)
    await history.end()
