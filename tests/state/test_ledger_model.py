"""The ledger against an oracle that keeps the same books in a dictionary, one step at a time."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import create_engine, select, update

from state.accounts import organisations
from state.billing import audit, postings, upkeep
from state.billing.postings import LEASE_S
from state.billing.purse import REQUESTS, SHARE, fill
from state.billing.usage import NO_USAGE, Bill, Entry, OverLimit, PurseGone, Usage
from state.database.tables import budgets, metadata, reservations, usage_lines
from tests.state.books import histories

AMOUNTS = st.integers(0, 60)
LIMITS = st.none() | st.integers(0, 150) | st.integers(150, 3000)
ORG, USERS = 1, (None, 1, 2)


class Oracle:
    """Limit, spent and held per budget (None is the organisation), and what is held for whom."""

    def __init__(self) -> None:
        self.limits: dict[int | None, int | None] = dict.fromkeys(USERS)
        self.spent = dict.fromkeys(USERS, 0)
        self.held: dict[str, tuple[int | None, int]] = {}
        self.lines: dict[str, int] = {}

    def of(self, user: int | None) -> list[int | None]:
        return [None] if user is None else [None, user]

    def held_by(self, budget: int | None) -> int:
        return sum(amount for user, amount in self.held.values() if budget is None or user == budget)

    def room(self, user: int | None) -> int:
        limited = [b for b in self.of(user) if self.limits[b] is not None]
        return min((self.limits[b] - self.spent[b] - self.held_by(b) for b in limited), default=10**9)  # type: ignore[operator]

    def refuser(self, user: int | None, amount: int) -> str | None:
        for budget, whose in zip(self.of(user), ("organisation", "user"), strict=False):
            limit = self.limits[budget]
            if limit is not None and self.spent[budget] + self.held_by(budget) + amount > limit:
                return whose
        return None

    def settle(self, entry: str, user: int | None, cost: int) -> int:
        if entry in self.lines:
            return self.lines[entry]
        _, held = self.held.pop(entry, (user, 0))
        charged = cost if cost <= held else min(cost, max(held, self.room(user)))
        for budget in self.of(user):
            self.spent[budget] += charged
        self.lines[entry] = charged
        return charged


class LedgerMachine(RuleBasedStateMachine):
    """Random reservations, top-ups, settlements, repetitions, crashes and limits."""

    entries = Bundle("entries")
    taken = Bundle("taken")

    def __init__(self) -> None:
        super().__init__()
        self.engine = create_engine("sqlite://")
        self.connection = self.engine.connect()
        metadata.create_all(self.connection)
        organisations.create(self.connection, "acme", "pro", (), 0)
        for name in ("eve", "bob"):
            organisations.ensure_user(self.connection, ORG, name, 0)
        self.oracle = Oracle()
        self.known: dict[str, Entry] = {}
        self.marked: dict[str, int] = {}
        self.ended: set[str] = set()
        self.purses: dict[int | None, Entry] = {}
        self.free: dict[str, int] = {}
        self.fills = 0

    def teardown(self) -> None:
        self.connection.close()
        self.engine.dispose()

    def refuser(self, transaction: Callable[..., object], *arguments: object) -> str | None:
        """Runs it as a database would, and tells whose limit refused it."""
        savepoint = self.connection.begin_nested()
        try:
            transaction(self.connection, *arguments)
        except OverLimit as refused:
            savepoint.rollback()
            return refused.payer
        savepoint.commit()
        return None

    @rule(budget=st.sampled_from(USERS), limit=LIMITS)
    def set_limit(self, budget: int | None, limit: int | None) -> None:
        organisations.set_limit(self.connection, ORG, budget, limit)
        self.oracle.limits[budget] = limit

    @rule(target=entries, user=st.sampled_from(USERS), amount=AMOUNTS)
    def reserve(self, user: int | None, amount: int) -> object:
        entry = Entry(f"id-{len(self.known)}", ORG, user, "key", "request", "chat:m", "m")
        expected = self.oracle.refuser(user, amount)
        assert self.refuser(postings.reserve, entry, amount) == expected
        if expected is not None:
            return multiple()
        self.oracle.held[entry.id] = (user, amount)
        self.known[entry.id] = entry
        return entry

    @rule(target=entries, user=st.sampled_from(USERS))
    def admit_without_limit(self, user: int | None) -> Entry:
        entry = Entry(f"id-{len(self.known)}", ORG, user, "key", "request", "chat:m", "m")
        self.known[entry.id] = entry
        return entry

    @rule(entry=entries, amount=AMOUNTS)
    def top_up(self, entry: Entry, amount: int) -> None:
        if entry.id not in self.oracle.held:
            assert not postings.top_up(self.connection, entry, amount, NO_USAGE)
            return
        expected = self.oracle.refuser(entry.user_id, amount)
        used = Usage(self.marked[entry.id], 1, "tokens") if entry.id in self.marked else NO_USAGE
        assert self.refuser(postings.top_up, entry, amount, used) == expected
        if expected is not None:
            return
        user, held = self.oracle.held[entry.id]
        self.oracle.held[entry.id] = (user, held + amount)

    @rule(entry=entries, cost=AMOUNTS, times=st.integers(1, 3))
    def settle(self, entry: Entry, cost: int, times: int) -> None:
        expected = self.oracle.settle(entry.id, entry.user_id, cost)
        self.ended.add(entry.id)
        for _ in range(times):
            assert postings.settle(self.connection, [Bill(entry, Usage(cost, 1, "tokens"))]) == [expected]

    @rule(entry=consumes(entries))
    def void(self, entry: Entry) -> None:
        was_held = self.oracle.held.pop(entry.id, None) is not None
        self.ended.add(entry.id)
        assert postings.void(self.connection, entry) == was_held
        assert not postings.void(self.connection, entry)

    @rule(entry=entries, cost=st.integers(1, 60))
    def mark(self, entry: Entry, cost: int) -> None:
        is_free = entry.id not in self.oracle.held and entry.id not in self.ended
        if is_free:
            # A caller without a limit gets a row that holds nothing.
            self.oracle.held[entry.id] = (entry.user_id, 0)
        if entry.id in self.oracle.held:
            self.marked[entry.id] = cost
        upkeep.mark(self.connection, [Bill(entry, Usage(cost, 1, "tokens"), has_row=not is_free)])

    @rule(user=st.sampled_from(USERS), amount=st.integers(1, 4))
    def fill(self, user: int | None, amount: int) -> None:
        purse = self.purses.get(user)
        is_new = purse is None or purse.id not in self.oracle.held
        if is_new:
            self.fills += 1
            purse = self.purses[user] = Entry(f"purse-{self.fills}", ORG, user, "", "purse", "purse", "purse")
            self.free[purse.id] = 0
        free, room = self.free[purse.id], self.oracle.room(user)
        times = min(REQUESTS, (room + free) // SHARE // amount)
        expected = times * amount - free if times >= 2 and times * amount > free else 0
        if not is_new and amount <= free:
            return  # it would be taken, not filled
        assert fill(self.connection, purse, is_new, free, amount) == expected
        if expected:
            self.oracle.held[purse.id] = (user, self.oracle.held.get(purse.id, (user, 0))[1] + expected)
            self.free[purse.id] += expected

    @rule(target=taken, user=st.sampled_from(USERS), amount=st.integers(1, 4))
    def take(self, user: int | None, amount: int) -> object:
        purse = self.purses.get(user)
        if purse is None or self.free[purse.id] < amount:
            return multiple()
        self.free[purse.id] -= amount
        entry = Entry(f"id-{len(self.known)}", ORG, user, "key", "request", "chat:m", "m")
        self.known[entry.id] = entry
        return entry, purse.id, amount

    @rule(request=consumes(taken), cost=AMOUNTS, times=st.integers(1, 2))
    def settle_from_a_purse(self, request: tuple[Entry, str, int], cost: int, times: int) -> None:
        entry, purse_id, amount = request
        covered = min(cost, amount + self.free[purse_id])
        self.free[purse_id] += amount - covered
        bill = Bill(entry, Usage(cost, 1, "tokens"), has_row=False, purse_id=purse_id, covered_micro_eur=covered)
        if purse_id in self.oracle.held:
            user, in_purse = self.oracle.held[purse_id]
            self.oracle.held[entry.id], self.oracle.held[purse_id] = (user, covered), (user, in_purse - covered)
        elif covered:
            with pytest.raises(PurseGone):
                postings.settle(self.connection, [bill])
            bill = Bill(entry, Usage(cost, 1, "tokens"), has_row=False)
        expected = self.oracle.settle(entry.id, entry.user_id, cost)
        self.ended.add(entry.id)
        for _ in range(times):
            assert self.settle_like_a_ledger(bill) == expected

    def settle_like_a_ledger(self, bill: Bill) -> int:
        """A purse that has paid all it had cannot pay a bill again; then it is posted without."""
        try:
            (charged,) = postings.settle(self.connection, [bill])
        except PurseGone:
            (charged,) = postings.settle(self.connection, [replace(bill, purse_id=None, covered_micro_eur=0)])
        return charged

    @rule(target=entries, request=consumes(taken), cost=st.integers(1, 60))
    def mark_from_a_purse(self, request: tuple[Entry, str, int], cost: int) -> Entry:
        entry, purse_id, amount = request
        bill = Bill(entry, Usage(cost, 1, "tokens"), has_row=False, purse_id=purse_id, covered_micro_eur=amount)
        if purse_id not in self.oracle.held:
            savepoint = self.connection.begin_nested()
            with pytest.raises(PurseGone):
                upkeep.mark(self.connection, [bill])
            savepoint.rollback()
            return entry
        for _ in range(2):
            upkeep.mark(self.connection, [bill])
        user, in_purse = self.oracle.held[purse_id]
        self.oracle.held[entry.id], self.oracle.held[purse_id] = (user, amount), (user, in_purse - amount)
        self.marked[entry.id] = cost
        return entry

    @rule(passed_s=st.sampled_from([1, 50, LEASE_S + 1]))
    def reap(self, passed_s: int) -> None:
        self.connection.execute(update(reservations).values(lease_until=reservations.c.lease_until - passed_s))
        for row in upkeep.orphans(self.connection):
            used = upkeep.recover(self.connection, row.id)
            assert used is not None
            assert used.cost_micro_eur == self.marked.get(row.id, 0)
            self.ended.add(row.id)
            if row.id in self.marked:
                self.oracle.settle(row.id, row.user_id, self.marked[row.id])
            else:
                del self.oracle.held[row.id]

    @invariant()
    def books_agree(self) -> None:
        assert audit.faults(self.connection) == []
        for row in self.connection.execute(select(budgets)):
            assert row.spent_micro_eur == self.oracle.spent[row.user_id]
            assert row.held_micro_eur == self.oracle.held_by(row.user_id)
        lines = self.connection.execute(select(usage_lines.c.reservation_id, usage_lines.c.cost_micro_eur))
        assert {row[0]: row[1] for row in lines} == self.oracle.lines


def test_the_ledger_agrees_with_its_oracle() -> None:
    run_state_machine_as_test(LedgerMachine, settings=histories(30, steps=40))  # type: ignore[no-untyped-call]
