"""Organisations, callers and books for the tests of this folder."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from sqlalchemy import Connection, func, select, update

from contract.access import TARIFFS, Caller, Scope
from state.accounts import organisations
from state.billing import audit
from state.database.base import Database
from state.database.tables import budgets, replies, reservations, tickets, usage_lines


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


async def money(database: Database, caller: Caller) -> tuple[int, int]:
    """(spent, held) micro-EUR of the caller's organisation, after proving that all books add up."""

    def transaction(connection: Connection) -> tuple[int, int]:
        assert audit.faults(connection) == []
        row = connection.execute(
            select(budgets).where(budgets.c.org_id == caller.org_id, budgets.c.user_id.is_(None))
        ).one()
        return row.spent_micro_eur, row.held_micro_eur

    return await database.run(transaction)


async def eventually(condition: Callable[[], Awaitable[bool]], within_s: float = 20.0) -> None:
    """Returns as soon as `condition` holds; fails the test if it does not in time."""
    async with asyncio.timeout(within_s):
        while not await condition():  # noqa: ASYNC110  # what is awaited is in another process or thread
            await asyncio.sleep(0.005)


async def line_count(database: Database) -> int:
    """How many usage lines there are."""
    return await database.run(
        lambda connection: connection.execute(select(func.count()).select_from(usage_lines)).scalar_one()
    )


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
