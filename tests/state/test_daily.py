"""Usage by day and model, over both databases."""

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import Connection, insert, text

from concurrency.background import start_task
from contract.access import Caller
from contract.limits import USAGE_ROWS
from contract.usage import UsageQuery, UsageRow, cursor_after
from state.accounts import organisations
from state.billing import daily
from state.billing.daily import SLICE_LINES, DailyUsage, UsagePage
from state.database.base import Database
from state.database.tables import usage_lines
from tests.state.books import make_caller, of_key
from tests.state.doubles import WatchedDatabase, statements
from tests.waiting import settled, until

DAY_MS = 86_400_000
LINES = 2 * SLICE_LINES + 100
ALL = UsageQuery(0, 40 * DAY_MS, USAGE_ROWS)


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


def page_of(lines: list[dict[str, Any]]) -> UsagePage:
    return UsagePage(expected(lines), False, sum(line["cost_micro_eur"] for line in lines))


def without_user(caller: Caller) -> Caller:
    return Caller(caller.org_id, "acme", "k", caller.tariff, caller.scopes)


async def test_rows_of_an_organisation_and_of_a_user_are_what_its_lines_add_up_to(database: Database) -> None:
    of_user, lines = await fill(database)
    watched = WatchedDatabase(database)
    usage = DailyUsage(watched)
    assert await usage.page(without_user(of_user), ALL) == page_of(lines)
    assert watched.ran == 3 + 1
    own = [line for line in lines if line["user_id"] == of_user.user_id]
    assert await usage.page(of_user, ALL) == page_of(own)
    part = UsageQuery(5 * DAY_MS + 1, 9 * DAY_MS, USAGE_ROWS)
    within = [line for line in own if part.since_ms <= line["at_ms"] < part.until_ms]
    assert await usage.page(of_user, part) == page_of(within)


async def walk(usage: DailyUsage, caller: Caller, limit: int) -> AsyncIterator[UsagePage]:
    page = await usage.page(caller, replace(ALL, limit=limit))
    yield page
    while page.has_more:
        cursor = cursor_after(page.rows[-1])
        query = UsageQuery.read({"from": "1971-01-01", "to": "1971-01-01", "cursor": cursor}, 0.0)
        page = await usage.page(caller, replace(ALL, limit=limit, after=query.after))
        yield page


@pytest.mark.parametrize(("slice_lines", "count"), [(1, 50), (7, 150), (1_000, 300)])
async def test_pages_have_each_row_once_wherever_slices_and_pages_end(
    database: Database, monkeypatch: pytest.MonkeyPatch, slice_lines: int, count: int
) -> None:
    caller, lines = await fill(database, count)
    whole, total = without_user(caller), sum(line["cost_micro_eur"] for line in lines)
    monkeypatch.setattr(daily, "SLICE_LINES", slice_lines)
    monkeypatch.setattr(daily, "TOTAL_LINES", slice_lines)
    for limit in (1, 3, 1000):
        pages = [page async for page in walk(DailyUsage(database), whole, limit)]
        assert [row for page in pages for row in page.rows] == expected(lines)
        assert {page.total_cost_micro_eur for page in pages} == {total}
        assert [len(page.rows) for page in pages[:-1]] == [limit] * (len(pages) - 1)


async def test_what_is_billed_between_two_pages_is_in_the_total_and_moves_no_row(database: Database) -> None:
    """Behind the cursor it is not seen again, at the cursor's day and after it is."""
    caller, lines = await fill(database, 300)
    whole, before = without_user(caller), expected(lines)
    seen: list[UsageRow] = []
    day = 20 * DAY_MS
    late = some_lines(caller.org_id, [None], 3)
    for line, at_ms, model in zip(late, (0, day + 5, day + 5), ("a", "a", "z"), strict=True):
        line |= {"reservation_id": f"late-{at_ms}-{model}", "at_ms": at_ms, "model": model, "cost_micro_eur": 1000}
    async for page in walk(DailyUsage(database), whole, 1):
        seen += page.rows
        assert page.total_cost_micro_eur == sum(line["cost_micro_eur"] for line in lines)
        if late and page.rows[-1]["day"] == "1970-01-21":
            await database.run(lambda c, rows=late: c.execute(insert(usage_lines), rows) and None)
            lines, late = lines + late, []
    new = [row for row in seen if row not in before]
    assert [row for row in seen if row in before] == before
    assert [(row["day"], row["model"]) for row in new] == [("1970-01-21", "z")]


async def test_a_page_costs_what_its_days_have_and_a_sum(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    caller, lines = await fill(database, 4_000)
    monkeypatch.setattr(daily, "SLICE_LINES", 100)
    watched = WatchedDatabase(database)
    ran = []
    for after in (None, ("1970-01-20", "m3"), ("1970-02-09", "m0")):
        watched.ran = 0
        page = await DailyUsage(watched).page(without_user(caller), replace(ALL, limit=4, after=after))
        ran.append(watched.ran)
        assert page.rows == [row for row in expected(lines) if (row["day"], row["model"]) > (after or ("", ""))][:4]
    # A day has a hundred lines: two days until the page is full and one more row is known, and one sum.
    assert max(ran) <= 2 + 2 + 1


async def test_a_long_page_gives_way_to_others_between_its_slices(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_user, _ = await fill(database, 200)
    monkeypatch.setattr(daily, "SLICE_LINES", 10)
    usage, ended = DailyUsage(WatchedDatabase(database)), list[str]()

    async def page(name: str, caller: Caller) -> None:
        await usage.page(caller, ALL)
        ended.append(name)

    other = replace(of_user, org_id=of_user.org_id + 1000, user_id=None)
    await asyncio.gather(page("long", without_user(of_user)), page("short", other))
    assert ended == ["short", "long"]


async def test_a_client_that_leaves_gives_up_its_turn_once_the_database_has_ended_its_slice() -> None:
    ended, ran = asyncio.Event(), list[Any]()

    async def transaction(slice: Any) -> Any:
        await ended.wait()
        return daily.Slice(ALL.until_ms, [], []) if slice.func is daily._slice else (ALL.until_ms, 0)

    async def run(slice: Any) -> Any:
        ran.append(slice)
        return await asyncio.shield(start_task(transaction(slice), set()))

    usage = DailyUsage(SimpleNamespace(run=run))
    leaving, other = [asyncio.create_task(usage.page(of_key(org_id=org_id), ALL)) for org_id in (1, 2)]
    await until(lambda: ran)
    leaving.cancel()
    await settled()
    assert len(ran) == 1
    ended.set()
    assert (await other).rows == []
    assert leaving.cancelled()


async def test_an_index_leads_to_the_lines_of_organisation_and_user(database: Database) -> None:
    of_user, _ = await fill(database, 10)
    for caller, index in (
        (without_user(of_user), "ix_usage_lines_org_id_at_ms"),
        (of_user, "ix_usage_lines_user_id_at_ms"),
    ):
        with statements() as seen:
            await DailyUsage(database).page(caller, ALL)
        selects = [each for each in seen if each[0].startswith("SELECT")]
        assert len(selects) == 3 + 2
        for statement, parameters in selects:
            assert index in await database.run(lambda c, s=statement, p=parameters: plan(c, s, p)), statement


def plan(connection: Connection, statement: str, parameters: Any) -> str:
    if connection.dialect.name == "postgresql":
        connection.execute(text("SET LOCAL enable_seqscan = off"))
    explain = "EXPLAIN" if connection.dialect.name == "postgresql" else "EXPLAIN QUERY PLAN"
    return "\n".join(str(tuple(row)) for row in connection.exec_driver_sql(f"{explain} {statement}", parameters))
