"""Organisations, callers, reservations and books for the tests of this folder."""

import os
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

import pytest
from hypothesis import HealthCheck, settings
from sqlalchemy import Connection, Table, func, select, update

from contract.access import TARIFFS, Caller, Scope
from contract.errors import ApiError
from state.accounts import organisations
from state.billing import audit
from state.billing.ledger import Ledger
from state.billing.reservation import Reservation
from state.database.base import Database
from state.database.open import connect
from state.database.tables import budgets, replies, reservations, tickets, usage_lines
from tests.waiting import until


def histories(number: int, steps: int = 1) -> settings:
    """That many histories, always the same; or as many as the environment says in HISTORIES, others each time."""
    most = int(os.environ.get("HISTORIES", number))
    return settings(max_examples=most, stateful_step_count=steps, suppress_health_check=list(HealthCheck))


def seeds(number: int) -> range:
    """Of histories that draw for themselves: from HISTORY_SEED on."""
    first = int(os.environ.get("HISTORY_SEED", "0"))
    return range(first, first + int(os.environ.get("HISTORIES", number)))


SLACK_S = 30
"""The database's clock goes on while a test runs: limits are tried from so far away."""

WAIT_S = 60
"""Of databases, so that a machine that is busy with other things refuses nothing."""


async def refusal(work: Awaitable[object]) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await work
    return caught.value


async def fault_of(work: Awaitable[object]) -> str | None:
    """The name of the fault that `work` ends with; None where it succeeds."""
    try:
        await work
    except ApiError as error:
        return error.fault.name
    return None


async def make_caller(
    database: Database, limit: int | None = None, user_limit: int | None = None, *, org: str = "acme", user: str = "eve"
) -> Caller:
    """A caller of a new organisation; it belongs to a user if there is a user limit."""

    def transaction(connection: Connection) -> tuple[int, int | None]:
        org_id = organisations.create(connection, org, "pro", (), 0)
        organisations.set_limit(connection, org_id, None, limit)
        if user_limit is None:
            return org_id, None
        user_id = organisations.ensure_user(connection, org_id, user, 0)
        organisations.set_limit(connection, org_id, user_id, user_limit)
        return org_id, user_id

    org_id, user_id = await database.run(transaction)
    return Caller(
        org_id=org_id,
        org=org,
        key_id="k3Jd92Xa",
        tariff=TARIFFS["pro"],
        scopes=frozenset(Scope),
        user_id=user_id,
        user=None if user_id is None else user,
        org_limited=limit is not None,
        user_limited=user_limit is not None,
    )


def of_key(key_id: str = "k3Jd92Xa", org_id: int = 1) -> Caller:
    return Caller(org_id, "acme", key_id, TARIFFS["pro"], frozenset(Scope))


async def set_limit(database: Database, caller: Caller, micro_eur: int | None) -> None:
    """Sets the spend limit of the caller's organisation; what has begun does not know it."""
    await database.run(lambda connection: organisations.set_limit(connection, caller.org_id, None, micro_eur))


async def reserve(ledger: Ledger, caller: Caller, micro_eur: int, request_id: str = "req-1") -> Reservation:
    return await ledger.reserve(caller, line="chat:m", model="m", estimate_micro_eur=micro_eur, request_id=request_id)


async def money(database: Database, caller: Caller) -> tuple[int, int]:
    """(spent, held) micro-EUR of the caller's organisation, after proving that all books add up."""

    def transaction(connection: Connection) -> tuple[int, int]:
        assert audit.faults(connection) == []
        row = connection.execute(
            select(budgets).where(budgets.c.org_id == caller.org_id, budgets.c.user_id.is_(None))
        ).one()
        return row.spent_micro_eur, row.held_micro_eur

    return await database.run(transaction)


async def until_money(database: Database, caller: Caller, expected: tuple[int, int]) -> None:
    async def is_there() -> bool:
        return await money(database, caller) == expected

    await until(is_there)


async def rows(database: Database, table: Table) -> int:
    query = select(func.count()).select_from(table)
    return await database.run(lambda connection: connection.execute(query).scalar_one())


async def line_count(database: Database) -> int:
    return await rows(database, usage_lines)


@asynccontextmanager
async def opened(url: str, count: int) -> AsyncIterator[list[Database]]:
    replicas = [connect(url, WAIT_S) for _ in range(count)]
    yield replicas
    for database in replicas:
        await database.close()


TIMES = (
    (reservations, ("created_at", "lease_until")),
    (replies, ("created_at", "lease_until")),
    (tickets, ("expires_at", "sweep_at")),
)
"""Columns that are compared with the database's clock."""


async def pass_time(database: Database, seconds: int) -> None:
    """Makes every row older, as if so much time had passed: the database's clock cannot be set."""

    def age(connection: Connection) -> None:
        for table, columns in TIMES:
            connection.execute(update(table).values({name: table.c[name] - seconds for name in columns}))

    await database.run(age)
