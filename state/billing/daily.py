"""What somebody was billed, by day and model: `GET /me/usage`.

An organisation can have a million lines in a day, and on SQLite all wait for who reads. So the database adds lines up
in slices, each a short transaction of its own that an index leads to, and for one client at a time in each process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, ColumnElement, Connection, Row, Text, case, cast, func, literal, select, true
from sqlalchemy.dialects import postgresql

from concurrency.semaphore import FairSemaphore
from contract.access import Caller
from contract.usage import Position, UsageQuery, UsageRow
from state.billing.usage import DAY, iso
from state.database.base import Database
from state.database.tables import usage_lines

SLICE_LINES = 10_000
"""Lines that one transaction adds up."""

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
"""What makes rows of that, by dialect."""


class Slice(NamedTuple):
    """Lines of a stretch of time that ends at `end_ms`, summed: rows of (day, model, ...)."""

    end_ms: int
    costs: Sequence[Row[Any]]
    quantities: Sequence[Row[Any]]


class DailyUsage:
    """Reads usage by day and model."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._turns = FairSemaphore(1)

    async def rows(self, caller: Caller, query: UsageQuery) -> list[UsageRow]:
        """Rows of the range in order, of the caller's user if its key has one, else of its organisation."""
        rows: dict[Position, UsageRow] = {}
        owner = _line.org_id == caller.org_id if caller.user_id is None else _line.user_id == caller.user_id
        async with self._turns.of(str(caller.org_id)):
            since_ms = query.since_ms
            while since_ms < query.until_ms:
                part = await self._database.run(
                    partial(_slice, owner=owner, since_ms=since_ms, until_ms=query.until_ms)
                )
                _add(rows, part)
                since_ms = part.end_ms
        return [rows[position] for position in sorted(rows)]


def _slice(connection: Connection, owner: ColumnElement[bool], since_ms: int, until_ms: int) -> Slice:
    """The lines from `since_ms` on, as many as one transaction adds up."""
    within = (owner, _line.at_ms >= since_ms, _line.at_ms < until_ms)
    next_line = select(_line.at_ms).where(*within).order_by(_line.at_ms).offset(SLICE_LINES).limit(1)
    end_ms = connection.execute(next_line).scalar_one_or_none()
    end_ms = until_ms if end_ms is None else max(end_ms, since_ms + 1)
    lines = (owner, _line.at_ms >= since_ms, _line.at_ms < end_ms)
    group = (DAY, _line.model)
    costs = select(*group, func.count().label("requests"), _sum(_line.cost_micro_eur)).where(*lines).group_by(*group)
    unit = _EACH[connection.dialect.name]().table_valued("key", "value")
    quantities = select(*group, unit.c.key.label("unit"), _sum(cast(unit.c.value, BigInteger))).where(*lines)
    quantities = quantities.select_from(usage_lines.join(unit, true())).group_by(*group, unit.c.key)
    return Slice(end_ms, connection.execute(costs).all(), connection.execute(quantities).all())


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
