"""Thousands of requests that want a small budget at one moment."""

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from contract.errors import ApiError
from state.billing.ledger import Ledger
from state.billing.reservation import Reservation
from state.database.base import Database, open_database
from tests.state.books import line_count, make_caller, money
from tests.state.servers import Postgres

pytestmark = pytest.mark.anyio

BUDGET = 400_000
PRICE = 700


async def race(database: Database, requests: int, seed: int) -> None:
    """Asserts that exactly as many requests get through as the budget pays for."""
    caller, ledger = await make_caller(database, BUDGET, org=f"race-{seed}"), Ledger(database)
    chance = random.Random(seed)
    won: list[Reservation] = []
    lost: list[str] = []

    async def one(number: int) -> None:
        try:
            won.append(
                await ledger.reserve(
                    caller, line="chat:m", model="m", estimate_micro_eur=PRICE, request_id=f"r{number}"
                )
            )
        except ApiError as refused:
            lost.append(refused.fault.name)

    lines = await line_count(database)
    await asyncio.gather(*(one(number) for number in range(requests)))
    assert len(won) == min(BUDGET // PRICE, requests)
    assert set(lost) == {"ORG_SPEND_LIMIT"}
    assert len(won) + len(lost) == requests

    costs = {hold.entry.id: chance.randint(0, PRICE) for hold in won}
    failed = [hold for hold in won if chance.random() < 0.1]
    await asyncio.gather(
        *(hold.void() if hold in failed else hold.settle(costs[hold.entry.id], 1, "tokens") for hold in won)
    )
    spent = sum(costs[hold.entry.id] for hold in won if hold not in failed)
    assert await money(database, caller) == (spent, 0)
    assert await line_count(database) == lines + len(won) - len(failed)

    # No false refusal at the end: what is left can be had to the last micro-EUR, and not one more.
    rest = BUDGET - spent
    last = await ledger.reserve(caller, line="chat:m", model="m", estimate_micro_eur=rest, request_id="last")
    with pytest.raises(ApiError):
        await ledger.reserve(caller, line="chat:m", model="m", estimate_micro_eur=1, request_id="over")
    await last.settle(rest, 1, "tokens")
    assert await money(database, caller) == (BUDGET, 0)


@pytest.fixture
async def patient(database_url: str) -> AsyncIterator[Database]:
    """A database that lets thousands wait; by default they would hear 503 after 4 s."""
    opened = await open_database(database_url, wait_s=120)
    yield opened
    await opened.close()


async def test_a_thousand_requests_race_for_a_small_budget(patient: Database) -> None:
    await race(patient, 1_000, seed=0)


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_ten_thousand_requests_race_twenty_times(patient: Database) -> None:
    for seed in range(20):
        await race(patient, 10_000, seed)


async def test_two_replicas_share_one_budget(postgres: Postgres) -> None:
    url = postgres.empty()
    first, second = await open_database(url), await open_database(url)
    caller = await make_caller(first, 10_000)
    ledgers = (Ledger(first), Ledger(second))

    async def one(number: int) -> bool:
        try:
            await ledgers[number % 2].reserve(
                caller, line="chat:m", model="m", estimate_micro_eur=100, request_id=f"r{number}"
            )
        except ApiError:
            return False
        return True

    assert sum(await asyncio.gather(*(one(number) for number in range(300)))) == 100
    assert await money(first, caller) == (0, 10_000)
    await first.close()
    await second.close()
