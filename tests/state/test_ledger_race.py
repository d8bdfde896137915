"""Thousands of requests that want a small budget at one moment."""

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from contract.errors import ApiError
from state.billing.ledger import Ledger
from state.billing.reservation import Reservation
from state.database.base import Database, open_database
from tests.state.books import line_count, make_caller, money, opened, refusal, reserve

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
            won.append(await reserve(ledger, caller, PRICE, f"r{number}"))
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
    last = await reserve(ledger, caller, rest)
    await refusal(reserve(ledger, caller, 1))
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


async def test_two_replicas_share_one_budget(postgres_url: str) -> None:
    async with opened(postgres_url, 2) as replicas:
        caller = await make_caller(replicas[0], 10_000)
        ledgers = [Ledger(database) for database in replicas]
        reserving = (reserve(ledgers[number % 2], caller, 100, f"r{number}") for number in range(300))
        answers = await asyncio.gather(*reserving, return_exceptions=True)
        assert sum(isinstance(answer, Reservation) for answer in answers) == 100
        assert sum(isinstance(answer, ApiError) for answer in answers) == 200
        assert await money(replicas[0], caller) == (0, 10_000)
