"""Usage by day and model, over both databases."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

from sqlalchemy import Connection, event, insert, text
from sqlalchemy.engine import Engine

from contract.access import Caller
from contract.usage import UsageQuery, UsageRow
from state.accounts import organisations
from state.billing.daily import SLICE_LINES, DailyUsage
from state.database.base import Database
from state.database.tables import usage_lines
from tests.state.books import make_caller
from tests.state.doubles import WatchedDatabase

DAY_MS = 86_400_000
LINES = 2 * SLICE_LINES + 100
ALL = UsageQuery(0, 40 * DAY_MS)


def some_lines(org_id: int, user_ids: list[int | None], count: int) -> list[dict[str, Any]]:
    chance = random.Random(1)
    lines = []
    for number in range(count):
        units = {"input_tokens": number % 7, "output_tokens": 3} if number % 3 else None
        kept = None if units is None else str(units).replace("'", '"')
        lines.append(
            {
                "reservation_id": f"{org_id}-{number}", "org_id": org_id, "user_id": user_ids[number % len(user_ids)],
                "at_ms": chance.randrange(40 * DAY_MS), "key_id": "k", "request_id": "r", "line": "l",
                "model": f"m{number % 4}", "quantity": number % 7 + 3, "unit": "tokens", "quantities": kept,
                "cost_micro_eur": number % 11,
            }
        )  # fmt: skip
    return lines


async def fill(database: Database, count: int = LINES) -> tuple[Caller, list[dict[str, Any]]]:
    """Lines of two organisations, the first of which has a user. Returns a caller of the user and the first's lines."""
    caller = await make_caller(database, 1, 1)

    def transaction(connection: Connection) -> list[dict[str, Any]]:
        other = organisations.create(connection, "other", "pro", (), 0)
        own = some_lines(caller.org_id, [None, caller.user_id], count)
        connection.execute(insert(usage_lines), own + some_lines(other, [None], 50))
        return own

    return caller, await database.run(transaction)


def expected(lines: list[dict[str, Any]]) -> list[UsageRow]:
    rows: dict[tuple[int, str], UsageRow] = {}
    for line in lines:
        day = line["at_ms"] // DAY_MS
        name = f"1970-{1 + day // 31:02}-{1 + day % 31:02}"
        row = rows.setdefault(
            (day, line["model"]),
            {"day": name, "model": line["model"], "requests": 0, "quantities": defaultdict(int), "cost_micro_eur": 0},
        )
        row["requests"] += 1
        row["cost_micro_eur"] += line["cost_micro_eur"]
        quantities = {"tokens": line["quantity"]}
        if line["quantities"] is not None:
            quantities = {"input_tokens": line["quantity"] - 3, "output_tokens": 3}
        for unit, quantity in quantities.items():
            row["quantities"][unit] += quantity
    return [rows[key] for key in sorted(rows)]


async def test_rows_of_an_organisation_and_of_a_user_are_what_its_lines_add_up_to(database: Database) -> None:
    of_user, lines = await fill(database)
    watched = WatchedDatabase(database)
    usage = DailyUsage(watched)
    whole = Caller(of_user.org_id, "acme", "k", of_user.tariff, of_user.scopes)
    assert await usage.rows(whole, ALL) == expected(lines)
    assert watched.ran == 3
    own = [line for line in lines if line["user_id"] == of_user.user_id]
    assert await usage.rows(of_user, ALL) == expected(own)
    part = UsageQuery(5 * DAY_MS + 1, 9 * DAY_MS)
    within = [line for line in own if part.since_ms <= line["at_ms"] < part.until_ms]
    assert await usage.rows(of_user, part) == expected(within)


async def test_an_index_leads_to_the_lines_of_organisation_and_user(database: Database) -> None:
    of_user, _ = await fill(database, 10)
    whole = Caller(of_user.org_id, "acme", "k", of_user.tariff, of_user.scopes)
    for caller, index in ((whole, "ix_usage_lines_org_id_at_ms"), (of_user, "ix_usage_lines_user_id_at_ms")):
        statements: list[tuple[str, Any]] = []

        def note(
            _c: object, _cursor: object, statement: str, parameters: Any, *_: object, into: Any = statements
        ) -> None:
            into.append((statement, parameters))

        event.listen(Engine, "before_cursor_execute", note)
        await DailyUsage(database).rows(caller, ALL)
        event.remove(Engine, "before_cursor_execute", note)
        selects = [each for each in statements if each[0].startswith("SELECT")]
        assert len(selects) == 3
        for statement, parameters in selects:
            assert index in await database.run(lambda c, s=statement, p=parameters: plan(c, s, p)), statement


def plan(connection: Connection, statement: str, parameters: Any) -> str:
    if connection.dialect.name == "postgresql":
        connection.execute(text("SET LOCAL enable_seqscan = off"))
    explain = "EXPLAIN" if connection.dialect.name == "postgresql" else "EXPLAIN QUERY PLAN"
    return "\n".join(str(tuple(row)) for row in connection.exec_driver_sql(f"{explain} {statement}", parameters))
