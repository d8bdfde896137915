"""The ledgers of two processes over one database, whose transactions run when a machine says so, if at all.

`test_ledger_model.py` holds the transactions themselves against an oracle.
"""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import select

from contract.errors import ORG_SPEND_LIMIT, STATE_UNAVAILABLE, USER_SPEND_LIMIT, ApiError
from state.accounts import organisations
from state.billing import audit, months, postings, purse, upkeep
from state.billing.ledger import Ledger
from state.billing.months import SPENT, month_at
from state.billing.postings import LEASE_S
from state.billing.reservation import Funds, Reservation
from state.database.tables import budgets, reservations, usage_lines
from tests.state.books import of_key, seeds
from tests.state.doubles import BAD, Call, Interleaved, Replica

BEGIN_S = 1_774_000_000
"""The 20th of March 2026: in Berlin clocks change before this month ends."""

ORG, EVE = 1, 1
ZONES = (None, "Europe/Berlin", "America/New_York", "UTC")
_LINES = select(usage_lines.c.reservation_id, usage_lines.c.user_id, usage_lines.c.cost_micro_eur)
_ROWS = select(reservations.c.id, reservations.c.state, reservations.c.held_micro_eur)
_BUDGETS = select(budgets.c.user_id, budgets.c.held_micro_eur, SPENT.label("spent"))
LIMITS = (100_000, 100_000, 2_000, 2_000, 500, 100, 0, None)
AMOUNTS = (1, 3, 5, 10, 20, 20, 60, 400, 3000)
KINDS = (postings.reserve, purse.fill, upkeep.mark, postings.top_up, postings.settle, postings.void)
FATES = ("waits", *BAD)
PLANS = (
    ("heal", "ask", "slow marks", "note", "void", "heal"),
    ("heal", "ask", "slow marks", "note", "settle", "heal"),
    ("heal", "ask", "ask", "lost marks", "note", "settle", "heal"),
    ("heal", "slow rows", "ask", "leave", "heal"),
    ("heal", "ask", "ask", "ask", "a long time", "settle", "top up", "top up"),
    ("heal", "lost fills", "ask", "heal", "ask"),
    ("heal", "slow fills", "ask", "unused", "heal"),
)
SECONDS = (1, 6, LEASE_S + 1, LEASE_S + 1, 70 * 86_400, -3600)
STEPS = {
    "ask": 6,
    "note": 6,
    "top up": 4,
    "learn of a limit": 1,
    "settle": 5,
    "void": 2,
    "fate": 5,
    "one transaction": 3,
    "heal": 3,
    "leave": 2,
    "tend": 1,
    "renew": 1,
    "reap": 1,
    "empty": 1,
    "limit": 1,
    "time": 1,
    "month": 1,
    "death": 1,
}
"""What may happen next, and how often."""


class Process(Replica):
    """One replica and its ledger."""

    def __init__(self, calls: list[Call]) -> None:
        super().__init__(calls)
        self.ledger = Ledger(self)

    @property
    def purses(self) -> dict[purse.Payer, purse.Purse]:
        return self.ledger._purses._purses


@dataclass(frozen=True)
class Line:
    """A bill that was recorded, and when this machine saw it."""

    id: str
    user_id: int | None
    cost: int
    at_s: int


@dataclass(eq=False)
class Request:
    """A request as its client sees it."""

    process: Process
    asking: asyncio.Task[Reservation]
    ending: asyncio.Task[Any] | None = None
    cost: int | None = None
    was_noted: bool = False

    @property
    def hold(self) -> Reservation | None:
        is_there = self.asking.done() and not self.asking.cancelled() and not self.asking.exception()
        return self.asking.result() if is_there else None


class Processes(Interleaved):
    """Requests of one organisation and a user of it; a client does the next thing before the one before has ended."""

    def __init__(self, seed: int) -> None:
        super().__init__(BEGIN_S)
        organisations.create(self.connection, "acme", "pro", (), 0)
        organisations.ensure_user(self.connection, ORG, "eve", 0)
        self.alive = [Process(self.calls), Process(self.calls)]
        self.chance = random.Random(seed)
        self.plan: list[str] = []
        self.is_calm, self.was_quiet, self.has_died, self.set_back = seed % 2 == 0, True, False, 0
        self.fates: dict[Any, str] = {}
        self.requests: list[Request] = []
        self.limits = {user: self.chance.choice(LIMITS) for user in (None, EVE)}
        self.zones = {user: self.chance.choice(ZONES) for user in (None, EVE)}
        self.taken: dict[int | None, int] = {None: 0, EVE: 0}
        self.lines: dict[str, Line] = {}
        self.rows: dict[str, Any] = {}
        self.acknowledged: set[str] = set()
        self.gone: dict[str, int] = {}
        """What requests had taken of a purse when it was known to be gone."""
        for user in (None, EVE):
            self.limit(user, self.limits[user])
            months.set_renewal(self.connection, ORG, user, self.zones[user])

    # --- what is asked of the ledgers

    def step(self) -> None:
        """One of STEPS; now and then the next one comes without waiting for what is under way."""
        self.is_hasty = self.chance.random() < 0.2
        self.was_quiet = not self.calls and all(task.done() for task in self.tasks)
        if not self.plan:
            (step,) = self.chance.choices([*STEPS], [*STEPS.values()])
            self.plan = [step] if self.chance.random() < 0.5 else [*self.chance.choice(PLANS)]
        step = self.plan.pop(0)
        process, user = self.chance.choice(self.alive[:1] + self.alive), self.chance.choice((None, None, EVE))
        match step:
            case "ask":
                self.ask(process, user)
            case "fate":
                self.fates[self.chance.choice(KINDS)] = self.chance.choice(FATES)
            case "one transaction" if self.calls:
                self.answer(self.chance.choice(self.calls), self.chance.choice(("fine", *BAD)))
                self.turn()
            case "slow marks" | "lost marks":
                self.fates[upkeep.mark] = "waits" if step == "slow marks" or self.is_calm else BAD[1]
            case "slow rows":
                self.fates[postings.reserve] = "waits"
            case "lost fills" | "slow fills":
                self.fates[purse.fill] = BAD[1] if step == "lost fills" else "waits"
            case "unused":
                for each in self.alive * (purse.UNUSED_TURNS + 1):
                    self.spawn(each.ledger.tend())
            case "a long time":
                self.time_passes(LEASE_S + 1)
            case "heal":
                self.fates.clear()
                self.heal()
            case "leave" if waiting := [task for task in self.tasks if not task.done()]:
                self.chance.choice(waiting).cancel()  # the client goes while it is asked for, or billed
            case "tend" | "renew" | "reap":
                self.spawn(getattr(process.ledger, step)())
            case "empty":
                self.loop.call_soon(process.ledger._purses.empty, ORG)
                self.turn()
            case "limit":
                self.limit(user, self.chance.choice(LIMITS))
            case "time":
                self.time_passes(self.chance.choice(SECONDS))
            case "month" if zone := self.zones[user]:
                ends_s = month_at(self.time.now_s, ZoneInfo(zone))[1] + self.chance.choice((-1, 0, 1))
                self.time_passes(max(0, ends_s - self.time.now_s))
            case "death" if not self.is_calm:
                self.alive[self.alive.index(process)] = Process(self.calls)
                self.kill(process, self.chance.randint(0, 2))
                self.has_died = True
            case _ if there := self.ongoing():
                # Most often the last one: what happens to the same request in a row tells most.
                self.go_on(*self.chance.choice([*there, *there[-1:] * len(there)]), step)
        self.all_is_right()

    def fate_of(self, call: Call) -> str:
        return self.fates.get(getattr(call.transaction, "func", None), "fine")

    def limit(self, user: int | None, limit: int | None) -> None:
        organisations.set_limit(self.connection, ORG, user, limit)
        self.limits[user] = limit
        self.is_new = True

    def ask(self, process: Process, user: int | None) -> None:
        limited = [self.limits[payer] is not None for payer in (None, EVE)]
        caller = replace(of_key(), user_id=user, user=user and "eve", org_limited=limited[0])  # type: ignore[arg-type]
        caller = replace(caller, user_limited=limited[1] and user is not None)
        about: Any = {"line": "chat:m", "model": "m", "request_id": "r"}
        amount = self.chance.choice(AMOUNTS)
        asking = self.spawn(process.ledger.reserve(caller, estimate_micro_eur=amount, **about))
        self.requests.append(Request(process, asking))
        self.refusal_is_right(process, asking, user, amount)

    def ongoing(self) -> list[tuple[Request, Reservation]]:
        held = [(each, each.hold) for each in self.requests if each.process in self.alive and not each.ending]
        return [(request, hold) for request, hold in held if hold]

    def go_on(self, request: Request, hold: Reservation, step: str) -> None:
        amount = self.chance.choice(AMOUNTS)
        match step:
            case "note":
                hold.note(hold.used.cost_micro_eur + amount, 1, "tokens")
                request.was_noted = True
                self.spawn(request.process.ledger.mark())
            case "top up":
                self.refusal_is_right(request.process, self.spawn(hold.top_up(amount)), hold.entry.user_id, amount)
            case "learn of a limit":
                self.spawn(hold.limit(replace(hold.caller, org_limited=True), amount))
            case "settle":
                request.cost = amount
                request.ending = self.spawn(hold.settle(amount, 1, "tokens"))
            case "void":
                request.ending = self.spawn(hold.void())

    def time_passes(self, seconds: int) -> None:
        """The first process takes what has expired of the other one."""
        if self.is_calm:
            seconds = min(max(seconds, 0), 6)
        before_s, self.time.now_s = self.time.now_s, self.time.now_s + seconds
        if seconds < 0:  # a clock that is set back; not into a month that has ended
            self.set_back += 1
            begins = [month_at(before_s, ZoneInfo(zone))[0] for zone in self.zones.values() if zone]
            self.time.now_s = max(self.time.now_s, *begins, 0)
        self.loop.now_s += max(0, seconds)
        self._leases_may_end(seconds)
        self.spawn(self.alive[0].ledger.reap())

    def _leases_may_end(self, seconds: int) -> None:
        self.taken = self._taken()
        for process in self.alive:
            process.is_sure &= seconds < 60

    # --- what holds

    def _taken(self) -> dict[int | None, int]:
        """What counts against each limit: the bills of this month as this machine saw them, and what is held."""
        begins = {payer: zone and month_at(self.time.now_s, ZoneInfo(zone))[0] for payer, zone in self.zones.items()}
        spent = dict.fromkeys(self.limits, 0)
        for line in self.lines.values():
            for payer in {None, line.user_id}:
                spent[payer] += line.cost if line.at_s >= (begins.get(payer) or 0) else 0
        rows = self.connection.execute(_BUDGETS).all()
        assert {row.user_id: row.spent for row in rows} == spent
        return {row.user_id: row.spent + row.held_micro_eur for row in rows}

    def books_agree(self) -> None:
        assert audit.faults(self.connection) == []
        rows = self.connection.execute(_LINES).all()
        costs = {row.reservation_id: row.cost_micro_eur for row in rows}
        assert len(rows) == len(costs)
        assert all(costs.get(id) == line.cost for id, line in self.lines.items()), "what is billed stays billed"
        new = {row.reservation_id: Line(*row, self.time.now_s) for row in rows if row.reservation_id not in self.lines}
        self.lines |= new
        taken = self._taken()
        for payer, limit in self.limits.items():
            assert limit is None or taken[payer] <= max(limit, self.taken[payer]), "more than a limit allows"
        self.taken = taken
        self.rows = {row.id: row for row in self.connection.execute(_ROWS)}

    def all_is_right(self) -> None:
        if self.is_new:
            self.books_agree()
            self.is_new = False
        self.what_was_acknowledged_is_recorded()
        for process in self.alive:
            self.what_it_holds_is_there(process)

    def what_was_acknowledged_is_recorded(self) -> None:
        for request in self.requests:
            hold, ending = request.hold, request.ending
            if not hold or not ending or not ending.done() or ending.cancelled() or hold.entry.id in self.acknowledged:
                continue
            self.acknowledged.add(hold.entry.id)
            line = self.lines.get(hold.entry.id)
            if request.cost is None:
                assert line is None or request.was_noted, "nothing is billed that was given back"
            elif hold.entry.id not in request.process.ledger._late:
                assert line
                assert line.cost == ending.result()
                assert not request.process.is_sure or line.cost >= min(request.cost, hold.held_micro_eur)
                assert request.was_noted or line.cost <= request.cost

    def refusal_is_right(self, process: Process, asking: asyncio.Task[Any], user: int | None, amount: int) -> None:
        """A limit refuses only what neither it nor a purse of the process has left."""
        self.all_is_right()
        error = asking.exception() if asking.done() and not asking.cancelled() else None
        is_limit = isinstance(error, ApiError) and error.fault in (ORG_SPEND_LIMIT, USER_SPEND_LIMIT)
        if is_limit and self.is_calm and self.was_quiet and not self.is_hasty and not self.calls:
            rest = {payer: limit - self.taken[payer] for payer, limit in self.limits.items() if limit is not None}
            for (_, owner), one in process.purses.items():
                rest |= {payer: rest[payer] + one.free_micro_eur for payer in {None, owner} & rest.keys()}
            assert min(rest[payer] for payer in {None, user} & rest.keys()) < amount, "it is left, and is refused"

    def what_it_holds_is_there(self, process: Process) -> None:
        """Each request has its money in one place, and a purse promises no more than its row holds."""
        rows, ledger = self.rows, process.ledger
        promised = {purse.entry.id: purse.free_micro_eur for purse in process.purses.values()}
        gone: Counter[str] = Counter()
        for hold in [each.hold for each in self.requests if each.process is process and each.hold]:
            assert (hold.purse is not None) == (hold.funds in (Funds.PURSE, Funds.MOVING))
            if hold.has_ended:
                continue
            row = rows.get(hold.entry.id)
            assert hold.may_have_row or row is None
            assert hold.held_micro_eur == 0 or hold.funds not in (Funds.NONE, Funds.OPENING)
            if hold.funds is Funds.ROW and process.is_sure:
                assert row
                assert row.held_micro_eur >= hold.held_micro_eur
            if hold.purse and row is None and hold.purse.entry.id in promised:
                promised[hold.purse.entry.id] += hold.held_micro_eur
            if hold.purse and hold.purse.is_gone:
                gone[hold.purse.entry.id] += hold.held_micro_eur
        for bill, _ in ledger._unposted.values():
            if bill.purse_id in promised and bill.entry.id not in self.lines and bill.entry.id not in rows:
                promised[bill.purse_id] += bill.covered_micro_eur
        for id, total in promised.items():
            is_held = id in rows and rows[id].state == "held"
            if total and not process.is_misled and (is_held or process.is_sure):
                assert is_held
                assert rows[id].held_micro_eur >= total
        for id, total in gone.items():
            assert total <= self.gone.setdefault(id, total), "a purse that is gone gives nothing"

    # --- and in the end

    def everything_ends(self) -> None:
        """Once the database is well, all that was held is billed or free again, whoever has left or died."""
        self.heal()
        for request in self.requests:
            if request.hold and not request.hold.has_ended:
                request.ending = None  # its client left before it could end it
        for process in self.alive:
            self.ask(process, None)
        for request, hold in self.ongoing():
            request.cost = 3
            request.ending = self.spawn(hold.settle(3, 1, "tokens"))
        mine = [task for each in self.requests if each.process in self.alive for task in (each.asking, each.ending)]
        self.pass_time_until(lambda: all(task.done() for task in mine if task))
        self.pass_time_until(lambda: not any(process.ledger._unposted for process in self.alive))
        errors = [task.exception() for task in self.tasks if task.done() and not task.cancelled()]
        assert all(error is None or isinstance(error, ApiError) for error in errors), errors
        for request in self.requests[-len(self.alive) :]:
            refused = request.asking.exception()
            assert not isinstance(refused, ApiError) or refused.fault is not STATE_UNAVAILABLE, "it is well again"
        self.all_is_right()
        is_sure = not self.has_died and all(process.is_sure for process in self.alive)
        closing = [self.spawn(process.ledger.close(), "has not begun") for process in self.alive]
        self.pass_time_until(lambda: all(task.done() for task in closing))
        if is_sure:
            self.nothing_is_held()
        self.time.now_s += 3600 * self.set_back + LEASE_S + 1
        self.taken = self._taken()
        self.spawn(Process(self.calls).ledger.reap())
        self.nothing_is_held()
        for request in self.requests:
            if request.process in self.alive and request.hold and request.cost is not None:
                assert request.hold.entry.id in self.lines, "whatever happened, each is billed"

    def nothing_is_held(self) -> None:
        self.books_agree()
        assert {row.held_micro_eur for row in self.connection.execute(_BUDGETS)} == {0}


@pytest.mark.usefixtures("marks_at_once")
def test_no_history_of_two_processes_loses_money_promises_it_twice_or_passes_a_limit() -> None:
    for seed in seeds(50):
        print(f"history {seed}")
        machine = Processes(seed)
        try:
            for _ in range(60):
                machine.step()
            machine.is_hasty = False
            machine.fates.clear()
            machine.everything_ends()
        finally:
            machine.close()
