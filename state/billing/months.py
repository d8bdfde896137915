"""Budgets that renew by month: what was spent counts from the first moment of the month in the budget's time zone.

`spent_micro_eur` of a budget only grows. Of that, `spent_before_micro_eur` was spent before the month that ends at
`renews_at`. Once that moment is over, nothing counts any more (`SPENT`), whether or not the row says so yet; and the
first bill that would add to the row moves both on before it does (`renew`), in its own transaction. Nothing has to run
at midnight, and a process that dies leaves nothing half done. What is held belongs to no month: it counts against
the limit of whichever month it is, and what becomes of it is spent in the month in which it is recorded.
"""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from sqlalchemy import BigInteger, ColumnElement, Connection, bindparam, case, cast, func, or_, select, update

from state.database.base import NOW_S, now_s
from state.database.tables import budgets, usage_lines

IS_OVER = budgets.c.renews_at <= NOW_S
IS_CURRENT = or_(budgets.c.renews_at.is_(None), budgets.c.renews_at > NOW_S)
"""Says if a bill may be added to the row as it is."""

SPENT: ColumnElement[int] = budgets.c.spent_micro_eur - case(
    (IS_OVER, budgets.c.spent_micro_eur), else_=budgets.c.spent_before_micro_eur
)
"""Amount that counts against the limit: all that was spent, or what was spent this month."""

_OVER = select(budgets.c.id, budgets.c.time_zone, NOW_S.label("now_s")).where(IS_OVER).with_for_update()
_RENEW = (
    update(budgets)
    .where(budgets.c.id == bindparam("of_id"))
    .values(spent_before_micro_eur=budgets.c.spent_micro_eur, renews_at=bindparam("until_s"))
)


def zone_of(name: str) -> ZoneInfo:
    """The time zone of this name. Raises ValueError."""
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError):  # unknown, a folder of zones, or no path at all
        raise ValueError(f"there is no time zone `{name[:100]}`; write one like Europe/Berlin or UTC") from None


def month_at(at_s: float, zone: ZoneInfo) -> tuple[int, int]:
    """The first moments of the month of `at_s` and of the next one, in seconds since 1970."""
    day = datetime.fromtimestamp(at_s, zone)
    years, month = divmod(day.month, 12)
    first = datetime(day.year, day.month, 1, tzinfo=zone)
    # Where a month begins within the hour that clocks skip, this is the end of that hour.
    return int(first.timestamp()), int(datetime(day.year + years, month + 1, 1, tzinfo=zone).timestamp())


def budget_of(org_id: int, user_id: int | None) -> ColumnElement[bool]:
    """The row of an organisation, or of a user of it."""
    return (budgets.c.org_id == org_id) & (
        budgets.c.user_id.is_(None) if user_id is None else budgets.c.user_id == user_id
    )


def renew(connection: Connection, org_id: int, user_id: int | None) -> None:
    """Begins the month of now where that of the budget is over. Another process may be faster."""
    for row in connection.execute(_OVER.where(budget_of(org_id, user_id))).all():
        until_s = month_at(row.now_s, zone_of(row.time_zone))[1]
        connection.execute(_RENEW, {"of_id": row.id, "until_s": until_s})


def time_zone(connection: Connection, org_id: int, user_id: int | None) -> str | None:
    """Time zone by the months of which a budget renews; None: it never does."""
    name: str | None = connection.execute(select(budgets.c.time_zone).where(budget_of(org_id, user_id))).scalar_one()
    return name


def set_renewal(connection: Connection, org_id: int, user_id: int | None, time_zone: str | None) -> None:
    """Has a budget renew by the months of a time zone, from the current one on; None: never.

    What was spent this month already is summed from the usage lines. Raises ValueError for an unknown time zone.
    """
    if time_zone == connection.execute(select(budgets.c.time_zone).where(budget_of(org_id, user_id))).scalar_one():
        return
    changes: dict[str, Any] = {"time_zone": time_zone, "renews_at": None, "spent_before_micro_eur": 0}
    if time_zone is not None:
        since_s, changes["renews_at"] = month_at(now_s(connection), zone_of(time_zone))
        owner = usage_lines.c.org_id == org_id if user_id is None else usage_lines.c.user_id == user_id
        total = select(cast(func.coalesce(func.sum(usage_lines.c.cost_micro_eur), 0), BigInteger))
        spent = total.where(owner, usage_lines.c.at_ms >= 1000 * since_s).scalar_subquery()
        # One statement, and no lock while it sums: bills that come meanwhile add as much to both numbers.
        before = select(budgets.c.spent_micro_eur - spent).where(budget_of(org_id, user_id))
        changes["spent_before_micro_eur"] = connection.execute(before).scalar_one()
    connection.execute(update(budgets).where(budget_of(org_id, user_id)).values(changes))


def iso_s(at_s: int, zone: tzinfo = UTC) -> str:
    """A time as text, to the second: 2026-11-20T10:52:00Z."""
    return datetime.fromtimestamp(at_s, zone).isoformat().replace("+00:00", "Z")
