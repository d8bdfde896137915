import asyncio
import gc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Connection, select

from contract.access import Caller
from contract.errors import STATE_UNAVAILABLE, ApiError
from state.accounts import organisations
from state.billing import ledger as ledger_module
from state.billing import postings, upkeep
from state.billing.ledger import Ledger
from state.billing.postings import LEASE_S
from state.billing.reservation import Bill, Reservation, Usage
from state.database.base import Database, RowRefused, T, now_s
from state.database.tables import reservations, usage_lines
from tests.state.books import eventually, line_count, make_caller, money, pass_time
from tests.waiting import until

pytestmark = pytest.mark.anyio

SLACK_S = 30
"""The database's clock goes on while a test runs: limits are tried from so far away."""


async def reserve(ledger: Ledger, caller: Caller, micro_eur: int) -> Reservation:
    return await ledger.reserve(caller, line="chat:m", model="m", estimate_micro_eur=micro_eur, request_id="req-1")


async def refusal(ledger: Ledger, caller: Caller, micro_eur: int) -> str:
    with pytest.raises(ApiError) as caught:
        await reserve(ledger, caller, micro_eur)
    return caught.value.fault.name


@pytest.mark.parametrize(("estimate", "fits"), [(99, True), (100, True), (101, False)])
async def test_a_reservation_fits_up_to_the_limit(database: Database, estimate: int, fits: bool) -> None:
    caller, ledger = await make_caller(database, 100), Ledger(database)
    if fits:
        assert (await reserve(ledger, caller, estimate)).held_micro_eur == estimate
    else:
        assert await refusal(ledger, caller, estimate) == "ORG_SPEND_LIMIT"
    assert await money(database, caller) == (0, estimate if fits else 0)


@pytest.mark.parametrize(
    ("org_limit", "user_limit", "code"),
    [(10, 100, "org_spend_limit"), (100, 10, "user_spend_limit"), (None, 10, "user_spend_limit")],
)
async def test_the_code_says_whose_limit_it_is(
    database: Database, org_limit: int | None, user_limit: int | None, code: str
) -> None:
    caller, ledger = await make_caller(database, org_limit, user_limit), Ledger(database)
    with pytest.raises(ApiError) as caught:
        await reserve(ledger, caller, 11)
    assert (caught.value.fault.status, caught.value.fault.code) == (402, code)
    assert await money(database, caller) == (0, 0)


async def test_the_other_users_budget_is_its_own(database: Database) -> None:
    caller, ledger = await make_caller(database, 100, 10), Ledger(database)
    await reserve(ledger, caller, 10)
    assert await refusal(ledger, caller, 1) == "USER_SPEND_LIMIT"

    def second_user(connection: Connection) -> int:
        return organisations.ensure_user(connection, caller.org_id, "bob", 0)

    bob = await database.run(second_user)
    other = Caller(caller.org_id, caller.org, "k", caller.tariff, caller.scopes, bob, "bob", org_limited=True)
    await reserve(ledger, other, 90)
    assert await refusal(ledger, other, 1) == "ORG_SPEND_LIMIT"


@pytest.mark.parametrize("estimate", [0, 1, 5])
async def test_a_budget_of_zero_forbids_every_billed_request(database: Database, estimate: int) -> None:
    caller = await make_caller(database, 0)
    assert await refusal(Ledger(database), caller, estimate) == "ORG_SPEND_LIMIT"


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
    assert await line_count(database) == 1


async def test_the_same_settlement_from_two_processes_bills_once(database: Database) -> None:
    # What a retry after an unknown outcome of a commit looks like.
    caller = await make_caller(database, 1000)
    first, second = Ledger(database), Ledger(database)
    hold = await reserve(first, caller, 50)
    bill = Bill(hold.entry, Usage(40, 1, "tokens"))
    await asyncio.gather(*(ledger.settle(bill) for ledger in (first, second) for _ in range(5)))
    assert await money(database, caller) == (40, 0)
    assert await line_count(database) == 1


@pytest.mark.parametrize("limit", [None, 1000])
async def test_one_request_id_used_again_is_billed_again(database: Database, limit: int | None) -> None:
    caller, ledger = await make_caller(database, limit), Ledger(database)
    for _ in range(2):
        await (await reserve(ledger, caller, 50)).settle(40, 1, "tokens")
    assert await money(database, caller) == (80, 0)


@pytest.mark.parametrize("limit", [None, 1000])
@pytest.mark.parametrize("request_id", ["a\0b", "\ud800", "x" * 100_000, "", "🔑'; DROP TABLE usage_lines;--"])
async def test_no_request_id_escapes_its_bill(database: Database, limit: int | None, request_id: str) -> None:
    caller, ledger = await make_caller(database, limit), Ledger(database)
    hold = await ledger.reserve(caller, line="l", model="m", estimate_micro_eur=9, request_id=request_id)
    await hold.settle(9, 1, "tokens")
    assert await money(database, caller) == (9, 0)


async def test_voiding_gives_everything_back_and_bills_nothing(database: Database) -> None:
    caller, ledger = await make_caller(database, 100), Ledger(database)
    hold = await reserve(ledger, caller, 100)
    await asyncio.gather(hold.void(), hold.void())
    assert await hold.settle(40, 1, "tokens") == 0
    assert await money(database, caller) == (0, 0)
    assert await line_count(database) == 0


async def test_leaving_the_block_by_an_error_voids(database: Database) -> None:
    caller, ledger = await make_caller(database, 100), Ledger(database)
    with pytest.raises(ZeroDivisionError):
        async with await reserve(ledger, caller, 100):
            raise ZeroDivisionError
    assert await money(database, caller) == (0, 0)
    async with await reserve(ledger, caller, 100) as hold:
        await hold.settle(99, 1, "tokens")
    assert await money(database, caller) == (99, 0)


async def test_without_a_limit_nothing_is_held_and_the_line_is_written(database: Database) -> None:
    caller, ledger = await make_caller(database), Ledger(database)
    hold = await reserve(ledger, caller, 50)
    await hold.top_up(50)
    assert hold.held_micro_eur == 0
    assert await database.run(lambda connection: connection.execute(select(reservations)).all()) == []
    assert await hold.settle(40, 1, "tokens") == 40
    assert await money(database, caller) == (40, 0)


async def test_a_stream_tops_up_until_the_limit_and_pays_what_it_made(database: Database) -> None:
    caller, ledger = await make_caller(database, 100), Ledger(database)
    hold = await reserve(ledger, caller, 40)
    await hold.top_up(30)
    await hold.top_up(30)
    with pytest.raises(ApiError) as caught:
        await hold.top_up(1)
    assert caught.value.fault.name == "ORG_SPEND_LIMIT"
    assert hold.held_micro_eur == 100
    assert await hold.settle(95, 1, "tokens") == 95
    assert await money(database, caller) == (95, 0)


async def test_topping_up_what_ended_elsewhere_is_refused(database: Database) -> None:
    caller, ledger = await make_caller(database, 100), Ledger(database)
    hold = await reserve(ledger, caller, 40)
    await ledger.void(hold.entry)
    with pytest.raises(ApiError) as caught:
        await hold.top_up(1)
    assert caught.value.fault.name == "STATE_UNAVAILABLE"
    assert await money(database, caller) == (0, 0)


@pytest.mark.parametrize(
    ("limit", "cost", "charged"), [(100, 99, 99), (100, 100, 100), (100, 101, 100), (None, 101, 101)]
)
async def test_a_cost_above_the_hold_is_charged_as_far_as_the_limit_goes(
    database: Database, limit: int | None, cost: int, charged: int
) -> None:
    caller, ledger = await make_caller(database, limit, 1000), Ledger(database)
    hold = await reserve(ledger, caller, 10)
    assert await hold.settle(cost, 1, "tokens") == charged
    assert await money(database, caller) == (charged, 0)


async def test_a_limit_that_came_after_admission_holds(database: Database) -> None:
    # The caller may be 5 s old: it says that there is no limit, and nothing was held.
    caller, ledger = await make_caller(database), Ledger(database)
    hold = await reserve(ledger, caller, 50)
    await database.run(lambda connection: organisations.set_limit(connection, caller.org_id, None, 30))
    assert await hold.settle(40, 1, "tokens") == 30
    assert await money(database, caller) == (30, 0)


async def test_lowering_a_limit_below_what_is_held_charges_what_was_promised(database: Database) -> None:
    caller, ledger = await make_caller(database, 100), Ledger(database)
    hold = await reserve(ledger, caller, 80)
    await database.run(lambda connection: organisations.set_limit(connection, caller.org_id, None, 10))
    assert await refusal(ledger, caller, 1) == "ORG_SPEND_LIMIT"
    assert await hold.settle(90, 1, "tokens") == 80
    assert await money(database, caller) == (80, 0)


async def test_orphans_are_given_back_and_live_reservations_are_not(database: Database) -> None:
    caller = await make_caller(database, 100)
    dead, alive = Ledger(database), Ledger(database)
    lost = await reserve(dead, caller, 30)
    kept = await reserve(alive, caller, 20)
    await pass_time(database, LEASE_S - SLACK_S)
    assert await Ledger(database).reap() == 0
    await alive.renew()
    await pass_time(database, SLACK_S + 1)
    assert await Ledger(database).reap() == 1
    assert await money(database, caller) == (0, 20)
    assert await kept.settle(20, 1, "tokens") == 20
    assert lost.held_micro_eur == 30


async def test_a_reservation_that_a_bug_forgot_is_given_back(database: Database) -> None:
    caller, ledger = await make_caller(database, 100), Ledger(database)
    await reserve(ledger, caller, 30)
    gc.collect()
    await pass_time(database, LEASE_S - SLACK_S)
    await ledger.renew()
    await pass_time(database, SLACK_S + 1)
    assert await ledger.reap() == 1
    assert await money(database, caller) == (0, 0)


async def test_several_reapers_give_back_once(database: Database) -> None:
    caller, dead = await make_caller(database, 1000), Ledger(database)
    await asyncio.gather(*(reserve(dead, caller, 10) for _ in range(30)))
    await pass_time(database, LEASE_S + 1)
    reapers = [Ledger(database) for _ in range(4)]
    assert sum(await asyncio.gather(*(reaper.reap() for reaper in reapers))) == 30
    assert await money(database, caller) == (0, 0)


async def test_work_that_outlived_its_lease_is_still_billed_within_the_limit(database: Database) -> None:
    caller, slow = await make_caller(database, 100), Ledger(database)
    hold = await reserve(slow, caller, 60)
    await pass_time(database, LEASE_S + 1)
    other = Ledger(database)
    assert await other.reap() == 1
    await reserve(other, caller, 70)
    assert await hold.settle(60, 1, "tokens") == 30
    assert await money(database, caller) == (30, 70)


async def test_ended_reservations_are_forgotten_after_a_day_and_lines_are_not(database: Database) -> None:
    caller, ledger = await make_caller(database, 100), Ledger(database)
    await (await reserve(ledger, caller, 10)).settle(10, 1, "tokens")
    await pass_time(database, LEASE_S + upkeep.KEEP_S + 1)
    await ledger.forget_old()
    assert await database.run(lambda connection: connection.execute(select(reservations)).all()) == []
    assert await line_count(database) == 1


async def test_a_client_that_leaves_while_money_is_held_leaves_nothing_held(database: Database) -> None:
    caller, ledger = await make_caller(database, 1_000_000), Ledger(database)
    for turns in range(30):
        asking = asyncio.create_task(reserve(ledger, caller, 7))
        for _ in range(turns):
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        if not asking.cancelled():
            await asking.result().void()
    await ledger.close()
    assert await money(database, caller) == (0, 0)


async def test_a_client_that_leaves_while_it_is_billed_is_billed(database: Database) -> None:
    caller, ledger = await make_caller(database, 1000), Ledger(database)
    for _ in range(10):
        hold = await reserve(ledger, caller, 7)
        billing = asyncio.create_task(hold.settle(5, 1, "tokens"))
        await asyncio.sleep(0)
        billing.cancel()
        await asyncio.gather(billing, return_exceptions=True)
    await ledger.close()
    assert await money(database, caller) == (50, 0)


class Refusing:
    """A database that does not answer while `down`."""

    def __init__(self, database: Database, error: Exception) -> None:
        self._database = database
        self.down = False
        self.error = error

    async def run(self, transaction: Callable[[Connection], T], **how: Any) -> T:
        if self.down:
            raise self.error
        return await self._database.run(transaction, **how)

    async def close(self) -> None:
        await self._database.close()


@pytest.mark.parametrize("error", [STATE_UNAVAILABLE(), RowRefused(), KeyError("x")], ids=repr)
async def test_a_database_that_is_away_closes_the_door_and_loses_no_line(
    database: Database, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(ledger_module, "RETRY_S", 0.001)
    away = Refusing(database, error)
    limited = await make_caller(database, 1000)
    free, other = await make_caller(database, org="free"), await make_caller(database, org="other")
    ledger = Ledger(away)
    holds = [await reserve(ledger, limited, 10), await reserve(ledger, free, 10)]
    away.down = True
    if isinstance(error, ApiError):
        assert await refusal(ledger, limited, 10) == error.fault.name
    for hold in holds:
        assert await hold.settle(9, 1, "tokens") == 9
    assert await refusal(ledger, free, 10) == "STATE_UNAVAILABLE"
    # Nothing of another organisation waits to be recorded.
    await reserve(ledger, other, 10)
    away.down = False

    async def both_recorded() -> bool:
        return await line_count(database) == 2

    await eventually(both_recorded)
    await ledger.close()
    assert await money(database, limited) == (9, 0)
    assert await money(database, free) == (9, 0)
    assert (await reserve(ledger, free, 10)).held_micro_eur == 0


@pytest.mark.parametrize("is_marked", [False, True], ids=["no row yet", "a row that holds nothing"])
@pytest.mark.parametrize(("micro_eur", "fits"), [(99, True), (100, True), (101, False)])
async def test_a_limit_that_is_set_holds_for_what_was_begun_without_one(
    database: Database, monkeypatch: pytest.MonkeyPatch, is_marked: bool, micro_eur: int, fits: bool
) -> None:
    monkeypatch.setattr("state.billing.reservation.MARK_S", 0.0)
    caller, ledger = await make_caller(database), Ledger(database)
    hold = await reserve(ledger, caller, 5)
    hold.note(30, 30, "tokens")
    if is_marked:
        await ledger.mark()
    await database.run(lambda connection: organisations.set_limit(connection, caller.org_id, None, 100))
    limited = replace(caller, org_limited=True)
    if fits:
        await hold.limit(limited, micro_eur)
        assert await money(database, caller) == (0, micro_eur)
        await hold.limit(limited, micro_eur)
        assert await money(database, caller) == (0, micro_eur), "it is held once"
    else:
        with pytest.raises(ApiError) as caught:
            await hold.limit(limited, micro_eur)
        assert caught.value.fault.name == "ORG_SPEND_LIMIT"
    await hold.settle(30, 30, "tokens")
    assert await money(database, caller) == (30, 0)


async def test_a_limit_that_is_set_while_a_mark_is_on_its_way_finds_its_row(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("state.billing.reservation.MARK_S", 0.0)
    caller, ledger = await make_caller(database), Ledger(database)
    hold = await reserve(ledger, caller, 5)
    hold.note(30, 30, "tokens")
    await database.run(lambda connection: organisations.set_limit(connection, caller.org_id, None, 100))
    run, may_write = database.run, asyncio.Event()

    async def late(transaction: Any, **options: Any) -> Any:
        if getattr(transaction, "func", None) is postings.mark:
            await may_write.wait()
        return await run(transaction, **options)

    monkeypatch.setattr(database, "run", late)
    marking = asyncio.create_task(ledger.mark())
    await until(lambda: hold.is_stored)
    limiting = asyncio.create_task(hold.limit(replace(caller, org_limited=True), 50))
    await asyncio.wait([limiting], timeout=0.2)
    may_write.set()
    await limiting
    await marking
    assert await money(database, caller) == (0, 50)
    await hold.settle(30, 30, "tokens")
    assert await money(database, caller) == (30, 0)


async def test_an_end_while_a_new_limit_is_looked_at_leaves_nothing_held(database: Database) -> None:
    caller, ledger = await make_caller(database), Ledger(database)
    hold = await reserve(ledger, caller, 5)
    hold.note(30, 30, "tokens")
    await database.run(lambda connection: organisations.set_limit(connection, caller.org_id, None, 100))
    limiting = asyncio.create_task(hold.limit(replace(caller, org_limited=True), 50))
    await asyncio.sleep(0)
    limiting.cancel()
    await hold.settle(30, 30, "tokens")
    await ledger.close()
    assert await money(database, caller) == (30, 0)


@pytest.mark.parametrize(
    ("org_limit", "user_limit", "held", "code"),
    [
        (None, None, 0, None),
        (0, None, 0, "org_spend_limit"),
        (1, None, 0, None),
        (1, None, 1, "org_spend_limit"),
        (5, 0, 0, "user_spend_limit"),
        (5, 1, 0, None),
        (None, 1, 1, "user_spend_limit"),
        (0, 0, 0, "org_spend_limit"),
    ],
)
async def test_room_is_required_of_what_costs_nothing(
    database: Database, org_limit: int | None, user_limit: int | None, held: int, code: str | None
) -> None:
    caller, ledger = await make_caller(database, org_limit, user_limit), Ledger(database)
    if held:
        await reserve(ledger, caller, held)
    if code is None:
        await ledger.require_room(caller)
    else:
        with pytest.raises(ApiError) as caught:
            await ledger.require_room(caller)
        assert caught.value.fault.code == code
    assert await money(database, caller) == (0, held)
