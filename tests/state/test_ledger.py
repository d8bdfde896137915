"""Money that is held, topped up, billed and given back, within limits, and thousands who race for one."""

import asyncio
import random
from dataclasses import replace

import pytest
from sqlalchemy import select

from contract.errors import ApiError
from state.billing.ledger import Ledger
from state.billing.reservation import Reservation
from state.database.base import Database, now_s
from state.database.open import open_database
from state.database.tables import usage_lines
from tests.state.books import SLACK_S, fault_of, line_count, make_caller, money, refusal, reserve, set_limit
from tests.state.doubles import LateDatabase
from tests.waiting import until


@pytest.mark.parametrize(
    ("org_limit", "user_limit", "micro_eur", "fault"),
    [
        (100, None, 99, None),
        (100, None, 100, None),
        (100, None, 101, "ORG_SPEND_LIMIT"),
        (10, 100, 11, "ORG_SPEND_LIMIT"),
        (100, 10, 11, "USER_SPEND_LIMIT"),
        (None, 10, 11, "USER_SPEND_LIMIT"),
        (0, None, 0, "ORG_SPEND_LIMIT"),  # a limit of zero forbids every billed request
        (0, None, 1, "ORG_SPEND_LIMIT"),
    ],
)
async def test_a_reservation_fits_up_to_the_limit_and_the_fault_says_whose_it_is(
    database: Database, org_limit: int | None, user_limit: int | None, micro_eur: int, fault: str | None
) -> None:
    caller, ledger = await make_caller(database, org_limit, user_limit), Ledger(database)
    assert await fault_of(reserve(ledger, caller, micro_eur)) == fault
    assert await money(database, caller) == (0, 0 if fault else micro_eur)


@pytest.mark.parametrize(
    ("org_limit", "user_limit", "held", "fault"),
    [
        (None, None, 0, None),
        (0, None, 0, "ORG_SPEND_LIMIT"),
        (1, None, 0, None),
        (1, None, 1, "ORG_SPEND_LIMIT"),
        (5, 0, 0, "USER_SPEND_LIMIT"),
        (5, 1, 0, None),
        (None, 1, 1, "USER_SPEND_LIMIT"),
        (0, 0, 0, "ORG_SPEND_LIMIT"),
    ],
)
async def test_room_is_required_of_what_costs_nothing(
    database: Database, org_limit: int | None, user_limit: int | None, held: int, fault: str | None
) -> None:
    caller, ledger = await make_caller(database, org_limit, user_limit), Ledger(database)
    if held:
        await reserve(ledger, caller, held)
    assert await fault_of(ledger.require_funds(caller)) == fault
    assert await money(database, caller) == (0, held)


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


@pytest.mark.parametrize("limit", [None, 1000])
@pytest.mark.parametrize("request_id", ["a\0b", "\ud800", "x" * 100_000, "", "🔑'; DROP TABLE usage_lines;--"])
async def test_no_request_id_escapes_its_bill(database: Database, limit: int | None, request_id: str) -> None:
    caller, ledger = await make_caller(database, limit), Ledger(database)
    hold = await reserve(ledger, caller, 9, request_id)
    await hold.settle(9, 1, "tokens")
    await ledger.close()
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


async def test_topping_up_what_ended_elsewhere_is_refused(database: Database) -> None:
    caller, ledger = await make_caller(database, 100), Ledger(database)
    hold = await reserve(ledger, caller, 40)
    await ledger.void(hold)
    assert await fault_of(hold.top_up(1)) == "STATE_UNAVAILABLE"
    assert await money(database, caller) == (0, 0)


@pytest.mark.parametrize(
    ("limit", "cost", "charged"), [(100, 99, 99), (100, 100, 100), (100, 101, 100), (None, 101, 101)]
)
async def test_a_cost_is_charged_as_far_as_the_limit(
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
    await set_limit(database, caller, 30)
    assert await hold.settle(40, 1, "tokens") == 30
    assert await money(database, caller) == (30, 0)


@pytest.mark.parametrize("is_marked", [False, True], ids=["no row yet", "a row that holds nothing"])
@pytest.mark.parametrize(("micro_eur", "fault"), [(99, None), (100, None), (101, "ORG_SPEND_LIMIT")])
@pytest.mark.usefixtures("marks_at_once")
async def test_a_limit_that_is_set_holds_for_what_was_begun_without_one(
    database: Database, is_marked: bool, micro_eur: int, fault: str | None
) -> None:
    caller, ledger = await make_caller(database), Ledger(database)
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


@pytest.mark.usefixtures("marks_at_once")
async def test_a_limit_that_is_set_while_a_mark_is_on_its_way_finds_its_row(database: Database) -> None:
    caller, late = await make_caller(database), LateDatabase(database)
    ledger = Ledger(late)
    hold = await reserve(ledger, caller, 5)
    hold.note(30, 30, "tokens")
    await set_limit(database, caller, 100)
    marking = asyncio.create_task(ledger.mark())
    await until(lambda: hold.may_have_row)
    limiting = asyncio.create_task(hold.limit(replace(caller, org_limited=True), 50))
    await asyncio.wait([limiting], timeout=0.2)
    late.may_write.set()
    await asyncio.gather(limiting, marking)
    assert await money(database, caller) == (0, 50)
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


async def test_a_thousand_requests_race_for_a_small_budget(database: Database, database_url: str) -> None:
    budget, price, chance = 400_000, 700, random.Random(0)
    # By default thousands that wait would get 503 after 4 s.
    patient = await open_database(database_url, wait_s=120)
    caller, ledger = await make_caller(patient, budget), Ledger(patient)
    answers = await asyncio.gather(
        *(reserve(ledger, caller, price, f"r{number}") for number in range(1000)), return_exceptions=True
    )
    won = [answer for answer in answers if isinstance(answer, Reservation)]
    assert len(won) == budget // price
    lost = [answer.fault.name for answer in answers if isinstance(answer, ApiError)]
    assert lost == ["ORG_SPEND_LIMIT"] * (1000 - len(won))

    costs = {hold.entry.id: chance.randint(0, price) for hold in won}
    failed = [hold for hold in won if chance.random() < 0.1]
    await asyncio.gather(
        *(hold.void() if hold in failed else hold.settle(costs[hold.entry.id], 1, "tokens") for hold in won)
    )
    spent = sum(costs[hold.entry.id] for hold in won if hold not in failed)
    assert await money(patient, caller) == (spent, 0)
    assert await line_count(patient) == len(won) - len(failed)

    # No false refusal at the end: what is left can be had to the last micro-EUR, and not one more.
    last = await reserve(ledger, caller, budget - spent)
    await refusal(reserve(ledger, caller, 1))
    await last.settle(budget - spent, 1, "tokens")
    assert await money(patient, caller) == (budget, 0)
    await patient.close()
