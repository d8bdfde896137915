"""Billed usage: of one request, and as lines and sums."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Connection, Select, cast, func, select

from contract.access import Caller
from contract.errors import ORG_SPEND_LIMIT, USER_SPEND_LIMIT, ApiError, Fault
from state.database.tables import organisations, usage_lines, users

COST = "micro_eur"
"""The unit of money among sums."""

SPEND_LIMITS = {"organisation": ORG_SPEND_LIMIT, "user": USER_SPEND_LIMIT}


class OverLimit(Exception):
    """A spend limit is exceeded. `payer` is `organisation` or `user`."""

    def __init__(self, payer: str) -> None:
        super().__init__(payer)
        self.payer = payer


class PurseGone(Exception):
    """A purse does not hold what it should: its lease has expired, or the row was never written."""

    def __init__(self, purse_id: str) -> None:
        super().__init__(purse_id)
        self.purse_id = purse_id


@dataclass(frozen=True, slots=True)
class Entry:
    """Billed work and its payer. `id` is random and unique; `request_id` may not be."""

    id: str
    org_id: int
    user_id: int | None
    key_id: str
    request_id: str
    line: str
    model: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Cost and usage of a request. `quantities` adds up to `quantity`, by the units that have prices."""

    cost_micro_eur: int
    quantity: int
    unit: str
    quantities: Mapping[str, int] | None = None


NO_USAGE = Usage(0, 0, "")


@dataclass(frozen=True, slots=True)
class Bill:
    """Content of a usage line to be written.

    Attributes:
        took_ms, waited_ms: milliseconds since the request came, and of these in wait; None if it is not known.
        has_row: whether the request may have a reservation of its own.
        purse_id: the purse that pays where it has none.
        covered_micro_eur: part of the cost that the purse holds.
        made_s: monotonic time of its making: it may be recorded much later.
    """

    entry: Entry
    used: Usage
    took_ms: int | None = None
    waited_ms: int | None = None
    has_row: bool = True
    purse_id: str | None = None
    covered_micro_eur: int = 0
    made_s: float = field(default_factory=time.monotonic)


def over_limit(refused: OverLimit, caller: Caller, fault: Fault | None = None) -> ApiError:
    """The 402 for a refusal; `fault` where it is not the one of that limit."""
    name = caller.org if refused.payer == "organisation" else caller.user
    return (fault or SPEND_LIMITS[refused.payer])(
        f"this request can cost more than the spend limit of {refused.payer} `{name}` has left"
    )


COLUMNS = (
    *("at", "organisation", "user", "key_id", "request_id", "line", "model"),
    *("quantity", "unit", "quantities", "cost_micro_eur", "took_ms", "waited_ms"),
)
"""Columns of a billed request without its `id`, which grows with every line, in the order of every format.

`at` is ISO 8601, UTC. `quantities` says by unit what `quantity` adds up: times the prices of the model, it is the cost.
The request came `took_ms` before `at`, and waited `waited_ms` of these for an engine. None on lines of older versions.
"""

DAY_MS = 86_400_000

DAY = (usage_lines.c.at_ms - usage_lines.c.at_ms % DAY_MS).label("day")
"""Midnight before, UTC."""

GROUPS: dict[str, ColumnElement[Any]] = {
    "organisation": organisations.c.name.label("organisation"),
    "user": users.c.name.label("user"),
    "key": usage_lines.c.key_id.label("key"),
    "model": usage_lines.c.model,
    "line": usage_lines.c.line,
    "unit": usage_lines.c.unit,
    "day": DAY,
}
"""Columns by which sums can be grouped."""

SUMS = ("requests", "quantity", "cost_micro_eur")


@dataclass(frozen=True, slots=True)
class Filter:
    """Filter of lines; None means all. Times are milliseconds since 1970 UTC, `until_ms` excluded."""

    org: str | None = None
    user: str | None = None
    key: str | None = None
    model: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None


SLICE_LINES = 20_000
"""Lines that one transaction looks through, however few of them are wanted: on SQLite a running server waits for it."""


def lines(connection: Connection, which: Filter, after_id: int) -> tuple[list[dict[str, Any]], int | None]:
    """Billed requests of the slice after a line, oldest first, and the last line of that; None: there are no more."""
    query = select(
        usage_lines.c.id,
        usage_lines.c.at_ms,
        organisations.c.name.label("organisation"),
        users.c.name.label("user"),
        *(usage_lines.c[name] for name in COLUMNS[3:]),
    )
    end_id = _end_id(connection, after_id)
    rows = connection.execute(_narrow(query, which, after_id, end_id).order_by(usage_lines.c.id))
    return [row._asdict() | {"at": iso(row.at_ms)} for row in rows], end_id


def sums(
    connection: Connection, which: Filter, groups: Sequence[str], after_id: int
) -> tuple[list[dict[str, Any]], int | None]:
    """Requests, quantity and cost per group of such a slice, and the last line of that."""
    columns = [GROUPS[name] for name in groups]
    totals = (
        func.count().label("requests"),
        cast(func.sum(usage_lines.c.quantity), BigInteger).label("quantity"),
        cast(func.sum(usage_lines.c.cost_micro_eur), BigInteger).label("cost_micro_eur"),
    )
    end_id = _end_id(connection, after_id)
    query = _narrow(select(*columns, *totals), which, after_id, end_id).group_by(*columns)
    rows = [dict(row) for row in connection.execute(query).mappings()]
    return [row | {"day": iso(row["day"])[:10]} if "day" in row else row for row in rows], end_id


def groups_of(by: Sequence[str]) -> tuple[str, ...]:
    """Returns the columns that sums by these names are grouped by. Raises ValueError for an unknown one.

    Quantities of different units cannot be added, so `unit` always belongs to the groups.
    """
    for name in by:
        if name not in GROUPS:
            raise ValueError(f"usage cannot be summed by `{name}`; choose from {', '.join(GROUPS)}")
    return tuple(dict.fromkeys((*by, "unit")))


def _end_id(connection: Connection, after_id: int) -> int | None:
    """The last line of the slice after a line; None where all that are left are one."""
    ids = select(usage_lines.c.id).where(usage_lines.c.id > after_id).order_by(usage_lines.c.id)
    return connection.execute(ids.offset(SLICE_LINES - 1).limit(1)).scalar_one_or_none()


NEWEST_LINES = 100_000
"""Lines that are looked through for who was asked last: by their ids, however many there are in all."""


def last_billed_ms(connection: Connection) -> dict[str, int]:
    """Returns when each model was billed last, in milliseconds since 1970 UTC; long unused models are left out."""
    lines = usage_lines.c
    line = select(lines.model, lines.at_ms).order_by(lines.id.desc()).limit(NEWEST_LINES).subquery()
    at_ms = func.max(line.c.at_ms).label("at_ms")
    return {row.model: row.at_ms for row in connection.execute(select(line.c.model, at_ms).group_by(line.c.model))}


def iso(at_ms: int) -> str:
    """A time as text: 2026-11-20T10:52:00.125Z."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _narrow(query: Select[Any], which: Filter, after_id: int, end_id: int | None) -> Select[Any]:
    query = query.select_from(usage_lines.join(organisations).outerjoin(users, users.c.id == usage_lines.c.user_id))
    query = query.where(usage_lines.c.id > after_id)
    if end_id is not None:
        query = query.where(usage_lines.c.id <= end_id)
    conditions = (
        (which.org, organisations.c.name.__eq__),
        (which.user, users.c.name.__eq__),
        (which.key, usage_lines.c.key_id.__eq__),
        (which.model, usage_lines.c.model.__eq__),
        (which.since_ms, usage_lines.c.at_ms.__ge__),
        (which.until_ms, usage_lines.c.at_ms.__lt__),
    )
    return query.where(*(condition(value) for value, condition in conditions if value is not None))
