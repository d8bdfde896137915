"""Organisations, their users and their limits: functions over a connection, for the command line and the first start.

Every refusal is a ValueError of one sentence, fit to be shown as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, TypedDict

from sqlalchemy import BigInteger, Connection, Row, cast, func, insert, select, update

from contract.access import TARIFFS, VOICES
from state.billing.months import SPENT, budget_of
from state.database.base import NOW_S, insert_new
from state.database.tables import PURSE, budgets, organisations, reservations, users

ENTITLEMENTS = frozenset({VOICES})
NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,99}", re.ASCII)
MAX_LIMIT_MICRO_EUR = 10**15


_is_purse = (reservations.c.line == PURSE) & (reservations.c.state == "held")
_IN_ADVANCE = (
    select(cast(func.coalesce(func.sum(reservations.c.held_micro_eur), 0), BigInteger))
    .where(_is_purse, reservations.c.org_id == budgets.c.org_id)
    .where(budgets.c.user_id.is_(None) | (reservations.c.user_id == budgets.c.user_id))
    .correlate(budgets)
    .scalar_subquery()
    .label("in_advance_micro_eur")
)
"""Money that servers hold for future requests, and for short ones under way."""

_SPENT = SPENT.label("spent_micro_eur")


class Changes(TypedDict, total=False):
    """New values of an organisation's columns; what is left out stays. None restores the default of plan or server."""

    plan: str
    entitlements: Iterable[str]
    models: frozenset[str] | None
    decision_model: str | None
    requests_per_minute: int | None
    concurrent_streams: int | None


def create(connection: Connection, name: str, plan: str, entitlements: Iterable[str], now_s: int) -> int:
    """Adds an organisation without a spend limit. Returns its id."""
    _check_name("organisation", name)
    row = {"name": name, "plan": _known_plan(plan), "entitlements": _known_entitlements(entitlements)}
    insertion = connection.execute(insert_new(connection, organisations).values(row | {"created_at": now_s}))
    if not insertion.rowcount:
        raise ValueError(f"the organisation `{name}` already exists")
    org_id: int = find(connection, name).id
    connection.execute(insert(budgets).values(org_id=org_id))
    return org_id


def find(connection: Connection, name: str) -> Row[Any]:
    """The row of an organisation by its name."""
    row = connection.execute(select(organisations).where(organisations.c.name == name)).one_or_none()
    if row is None:
        raise ValueError(f"there is no organisation `{name}`; `org list` shows all")
    return row


def lock(connection: Connection, org_id: int) -> None:
    """Waits until no other transaction counts what this organisation has, so that a count still holds at the insert.

    Rows that refer to the organisation, like usage lines, are not blocked.
    """
    query = select(organisations.c.id).where(organisations.c.id == org_id).with_for_update(key_share=True)
    connection.execute(query).one()


def all_rows(connection: Connection) -> list[Row[Any]]:
    """Every organisation with its limit, spent and held micro-EUR, by name."""
    columns = (budgets.c.limit_micro_eur, _SPENT, budgets.c.held_micro_eur)
    own_budget = (budgets.c.org_id == organisations.c.id) & budgets.c.user_id.is_(None)
    query = select(organisations, *columns).join(budgets, own_budget).order_by(organisations.c.name)
    return list(connection.execute(query))


def change(connection: Connection, name: str, changes: Changes) -> None:
    """Sets columns of an organisation. Raises ValueError for an unknown organisation, plan or entitlement."""
    org_id = find(connection, name).id
    values = {**changes}
    if "plan" in changes:
        _known_plan(changes["plan"])
    if "entitlements" in changes:
        values["entitlements"] = _known_entitlements(changes["entitlements"])
    if values:
        connection.execute(update(organisations).where(organisations.c.id == org_id).values(values))


def ensure_user(connection: Connection, org_id: int, name: str, now_s: int) -> int:
    """The id of a user of the organisation; a new name is added."""
    _check_name("user", name)
    row = {"org_id": org_id, "name": name, "created_at": now_s}
    insertion = connection.execute(insert_new(connection, users).values(row))
    user_id: int = find_user(connection, org_id, name).id
    if insertion.rowcount:
        connection.execute(insert(budgets).values(org_id=org_id, user_id=user_id))
    return user_id


def find_user(connection: Connection, org_id: int, name: str) -> Row[Any]:
    """The row of a user by name."""
    row = connection.execute(select(users).where(users.c.org_id == org_id, users.c.name == name)).one_or_none()
    if row is None:
        raise ValueError(f"the organisation has no user `{name}`; `budget list` shows all")
    return row


def set_limit(connection: Connection, org_id: int, user_id: int | None, limit_micro_eur: int | None) -> None:
    """Sets the spend limit of an organisation, or of one of its users; None removes it, 0 forbids all spending."""
    if limit_micro_eur is not None and not 0 <= limit_micro_eur <= MAX_LIMIT_MICRO_EUR:
        raise ValueError(f"a limit must be 0 to {MAX_LIMIT_MICRO_EUR} micro-EUR, not {limit_micro_eur}")
    connection.execute(update(budgets).where(budget_of(org_id, user_id)).values(limit_micro_eur=limit_micro_eur))


def require(connection: Connection, org: str | None, user: str | None) -> None:
    """Raises ValueError for unknown names: of an organisation, and of a user of it, or of any. None is all."""
    org_id = None if org is None else find(connection, org).id
    if user is None:
        return
    if org_id is not None:
        find_user(connection, org_id, user)
    elif connection.execute(select(users.c.id).where(users.c.name == user)).first() is None:
        raise ValueError(f"no organisation has a user `{user[:100]}`; `budget list --org NAME` shows those of one")


def list_budgets(connection: Connection, org_id: int) -> list[Row[Any]]:
    """Limit, spent, held and of that in purses: micro-EUR of an organisation (`user` is None) and of each user.

    Of budgets that renew, `time_zone` is not None, and what was spent is that of the month of `now_s`.
    """
    money = (budgets.c.limit_micro_eur, _SPENT, budgets.c.held_micro_eur, _IN_ADVANCE)
    columns = (*money, budgets.c.time_zone, NOW_S.label("now_s"))
    query = select(users.c.name.label("user"), *columns).select_from(budgets.outerjoin(users))
    return list(connection.execute(query.where(budgets.c.org_id == org_id).order_by(budgets.c.id)))


def left(row: Row[Any]) -> int | None:
    """The micro-EUR that a budget of `list_budgets` leaves; None where it has no limit."""
    if row.limit_micro_eur is None:
        return None
    return max(0, int(row.limit_micro_eur) - int(row.spent_micro_eur) - int(row.held_micro_eur))


def is_taken(connection: Connection, name: str) -> bool:
    """Says if an organisation has this name."""
    return connection.execute(select(organisations.c.id).where(organisations.c.name == name)).first() is not None


def _check_name(kind: str, name: str) -> None:
    if not NAME_PATTERN.fullmatch(name):
        raise ValueError(
            f"the {kind} name {name!r} must be 1 to 100 letters, digits and . _ @ + -, and begin with a letter or digit"
        )


def _known_plan(plan: str) -> str:
    if plan not in TARIFFS:
        raise ValueError(f"there is no plan `{plan}`; choose one of {', '.join(TARIFFS)}")
    return plan


def _known_entitlements(names: Iterable[str]) -> frozenset[str]:
    for name in names:
        if name not in ENTITLEMENTS:
            raise ValueError(f"there is no entitlement `{name}`; choose one of {', '.join(sorted(ENTITLEMENTS))}")
    return frozenset(names)
