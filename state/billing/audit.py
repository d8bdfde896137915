"""Proves that the books add up: usage lines sum to what is spent, open reservations to what is held."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Connection, Row, Table, cast, func, literal, select, text

from state.database.tables import PURSE, budgets, reservations, usage_lines


def faults(connection: Connection) -> list[str]:
    """One sentence per sum that does not add up; empty if all do. Must be the first statement of its transaction."""
    if connection.dialect.name == "postgresql":
        # All sums from one snapshot: the service keeps billing meanwhile.
        connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
    sentences = []
    for budget in connection.execute(select(budgets).order_by(budgets.c.id)):
        used = _total(connection, usage_lines.c.cost_micro_eur, _rows_of(usage_lines, budget))
        still_held = _rows_of(reservations, budget) & (reservations.c.state == "held")
        total_held = _total(connection, reservations.c.held_micro_eur, still_held)
        name = f"organisation {budget.org_id}" + ("" if budget.user_id is None else f", user {budget.user_id}")
        if used != budget.spent_micro_eur:
            sentences.append(
                f"{name}: usage lines add up to {used} micro-EUR, but the budget says {budget.spent_micro_eur} are "
                "spent"
            )
        if total_held != budget.held_micro_eur:
            sentences.append(f"{name}: reservations hold {total_held}, but {budget.held_micro_eur} are held")
    return sentences


def recovered(connection: Connection) -> int:
    """Number of usage lines with what a dead process had recorded of a request, and not its final amount."""
    count = select(func.count()).select_from(usage_lines).where(usage_lines.c.recovered == 1)
    return connection.execute(count).scalar_one()


def in_advance(connection: Connection) -> int:
    """The micro-EUR that servers hold in purses."""
    is_purse = (reservations.c.line == PURSE) & (reservations.c.state == "held")
    return _total(connection, reservations.c.held_micro_eur, is_purse)


def _rows_of(table: Table, budget: Row[Any]) -> ColumnElement[bool]:
    if budget.user_id is None:
        return table.c.org_id == literal(budget.org_id)
    return table.c.user_id == literal(budget.user_id)


def _total(connection: Connection, column: ColumnElement[int], condition: ColumnElement[bool]) -> int:
    total = cast(func.coalesce(func.sum(column), 0), BigInteger)
    return int(connection.execute(select(total).where(condition)).scalar_one())
