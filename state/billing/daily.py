"""Usage by day and model: `GET /me/usage`.

An organisation can have a million lines in a day, and on SQLite all wait for a reader. So the database adds lines up
in slices, each a short transaction of its own that an index leads to, one at a time in each process; for each of them
organisations take turns. A
page begins with the day of its cursor and ends where it is full; the total is one sum per slice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, ColumnElement, Connection, Row, Text, case, cast, func, literal, select, text, true
from sqlalchemy.dialects import postgresql

from concurrency.background import to_its_end
from concurrency.semaphore import FairSemaphore
from contract.access import Caller
from contract.usage import Position, UsageQuery, UsageRow
from state.billing.usage import DAY, iso
from state.database.base import Database
from state.database.tables import usage_lines

SLICE_LINES = 10_000
"""Lines that one transaction adds up by day, model and unit."""
TOTAL_LINES = 50_000
"""The same where it adds up nothing but costs, in about the same time."""

_line = usage_lines.c
_TEXT = case(
    (_line.quantities.is_(None), literal('{"') + _line.unit + '":' + cast(_line.quantity, Text) + "}"),
    else_=cast(_line.quantities, Text),
)
"""Quantities by unit, as JSON; lines of old versions have one."""

_EACH: Mapping[str, Callable[[], Any]] = {
    "sqlite": lambda: func.json_each(_TEXT),
    "postgresql": lambda: func.json_each_text(cast(_TEXT, postgresql.JSON)),
}
"""SQL that turns them into rows, by dialect."""

_NO_JIT = text("SET LOCAL jit = off")
"""PostgreSQL expects a hundred units in each line, and would compile each slice for longer than it runs."""


Turn = Callable[[], AbstractAsyncContextManager[None]]
"""Around each transaction, to its end: organisations take turns."""


class Slice(NamedTuple):
    """Lines of a stretch of time that ends at `end_ms`, summed: rows of (day, model, ...)."""

    end_ms: int
    costs: Sequence[Row[Any]]
    quantities: Sequence[Row[Any]]


class UsagePage(NamedTuple):
    """Rows in order, whether more come after them, and what the whole range cost."""

    rows: list[UsageRow]
    has_more: bool
    total_cost_micro_eur: int


class DailyUsage:
    """Reads usage by day and model."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._turns = FairSemaphore(1)

    async def page(self, caller: Caller, query: UsageQuery) -> UsagePage:
        """The page that `query` wants, of the caller's user if its key has one, else of its organisation.

        What is billed meanwhile is in it or not; no line counts twice.
        """
        owner = _line.org_id == caller.org_id if caller.user_id is None else _line.user_id == caller.user_id
        turn = partial(self._turns.of, str(caller.org_id))
        rows = await self._rows(turn, owner, query)
        total = await self._total(turn, owner, query)
        return UsagePage(rows[: query.limit], len(rows) > query.limit, total)

    async def _rows(self, turn: Turn, owner: ColumnElement[bool], query: UsageQuery) -> list[UsageRow]:
        """The rows after the cursor: more than a page has, or all that there are."""
        sums: dict[Position, UsageRow] = {}
        since_ms, rows = query.page_since_ms, list[UsageRow]()
        while since_ms < query.until_ms and len(rows) <= query.limit:
            run = partial(_slice, owner=owner, since_ms=since_ms, until_ms=query.until_ms)
            async with turn():
                part = await to_its_end(self._database.run(run))
            _add(sums, part)
            since_ms = part.end_ms
            # The day in which the next slice begins may have more.
            ends = since_ms >= query.until_ms
            complete = sorted(position for position in sums if ends or position[0] < iso(since_ms)[:10])
            ready = {position: sums.pop(position) for position in complete}
            rows += [row for position, row in ready.items() if query.after is None or position > query.after]
        return rows

    async def _total(self, turn: Turn, owner: ColumnElement[bool], query: UsageQuery) -> int:
        since_ms, total = query.since_ms, 0
        while since_ms < query.until_ms:
            run = partial(_cost, owner=owner, since_ms=since_ms, until_ms=query.until_ms)
            async with turn():
                since_ms, cost = await to_its_end(self._database.run(run))
            total += cost
        return total


def _slice(connection: Connection, owner: ColumnElement[bool], since_ms: int, until_ms: int) -> Slice:
    """The lines from `since_ms` on, as many as one transaction adds up."""
    if connection.dialect.name == "postgresql":
        connection.execute(_NO_JIT)
    end_ms = _end_ms(connection, owner, since_ms, until_ms, SLICE_LINES)
    lines = (owner, _line.at_ms >= since_ms, _line.at_ms < end_ms)
    group = (DAY, _line.model)
    costs = select(*group, func.count().label("requests"), _sum(_line.cost_micro_eur)).where(*lines).group_by(*group)
    unit = _EACH[connection.dialect.name]().table_valued("key", "value")
    quantities = select(*group, unit.c.key.label("unit"), _sum(cast(unit.c.value, BigInteger))).where(*lines)
    quantities = quantities.select_from(usage_lines.join(unit, true())).group_by(*group, unit.c.key)
    return Slice(end_ms, connection.execute(costs).all(), connection.execute(quantities).all())


def _cost(connection: Connection, owner: ColumnElement[bool], since_ms: int, until_ms: int) -> tuple[int, int]:
    """Until when one transaction adds costs up, and what they are."""
    end_ms = _end_ms(connection, owner, since_ms, until_ms, TOTAL_LINES)
    cost = select(_sum(_line.cost_micro_eur)).where(owner, _line.at_ms >= since_ms, _line.at_ms < end_ms)
    return end_ms, connection.execute(cost).scalar_one() or 0


def _end_ms(connection: Connection, owner: ColumnElement[bool], since_ms: int, until_ms: int, count: int) -> int:
    """The time before which `count` lines are, or all that there are; more, where these are of one millisecond."""
    within = (owner, _line.at_ms >= since_ms, _line.at_ms < until_ms)
    next_line = select(_line.at_ms).where(*within).order_by(_line.at_ms).offset(count).limit(1)
    end_ms = connection.execute(next_line).scalar_one_or_none()
    return until_ms if end_ms is None else max(end_ms, since_ms + 1)


def _add(rows: dict[Position, UsageRow], part: Slice) -> None:
    for cost in part.costs:
        day = iso(cost.day)[:10]
        empty: UsageRow = {"day": day, "model": cost.model, "requests": 0, "quantities": {}, "cost_micro_eur": 0}
        row = rows.setdefault((day, cost.model), empty)
        row["requests"] += cost.requests
        row["cost_micro_eur"] += cost.total
    for quantity in part.quantities:
        quantities = rows[iso(quantity.day)[:10], quantity.model]["quantities"]
        quantities[quantity.unit] = quantities.get(quantity.unit, 0) + quantity.total


def _sum(column: ColumnElement[Any]) -> ColumnElement[int]:
    return cast(func.sum(column), BigInteger).label("total")
