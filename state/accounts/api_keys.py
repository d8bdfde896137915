"""Rows of API keys: functions over a connection. The text of a key is never stored, only an HMAC of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from sqlalchemy import Connection, Row, bindparam, func, insert, select, update

from contract.access import OPERATORS, Scope
from state.database.base import NOW_S
from state.database.tables import api_keys, budgets, organisations, users
from state.keys import Key, Keyring

HINT_CHARS = 4
HOUR_S = 3600

_org_budget = budgets.alias("org_budget")
_user_budget = budgets.alias("user_budget")

FIND = (
    select(
        *(column for column in api_keys.c if column.name != "hint"),
        *(column.label(f"org_{column.name}") for column in organisations.c if column.name != "id"),
        users.c.name.label("user"),
        _org_budget.c.limit_micro_eur.label("org_limit_micro_eur"),
        _user_budget.c.limit_micro_eur.label("user_limit_micro_eur"),
    )
    .join(organisations, organisations.c.id == api_keys.c.org_id)
    .join(_org_budget, (_org_budget.c.org_id == api_keys.c.org_id) & _org_budget.c.user_id.is_(None))
    .outerjoin(users, users.c.id == api_keys.c.user_id)
    .outerjoin(_user_budget, _user_budget.c.user_id == api_keys.c.user_id)
    .where(api_keys.c.public_id == bindparam("public_id"))
)
"""The only query that an `Authorization` header can cause."""


def parse_scopes(names: Iterable[str]) -> frozenset[Scope]:
    """Scopes by name; `all` means every one but those of operators. Raises ValueError naming the first unknown one."""
    scopes: set[Scope] = set()
    for name in names:
        if name != "all" and name not in set(Scope):
            raise ValueError(f"there is no scope `{name}`; choose from {', '.join(Scope)}, or all")
        scopes |= frozenset(Scope) - OPERATORS if name == "all" else {Scope(name)}
    if not scopes:
        raise ValueError(f"a key needs at least one scope; choose from {', '.join(Scope)}, or all")
    return frozenset(scopes)


def store(
    connection: Connection,
    key: Key,
    pepper: Keyring,
    *,
    org_id: int,
    user_id: int | None,
    scopes: frozenset[Scope],
    label: str | None,
    now_s: int,
    expires_at: int | None = None,
) -> None:
    """Stores `key`, valid at once, and before the second `expires_at`."""
    row = {
        "public_id": key.public_id,
        "org_id": org_id,
        "user_id": user_id,
        "kid": pepper.kid,
        "digest": pepper.sign(key.text.encode()),
        "hint": key.text[-HINT_CHARS:],
        "label": label,
        "scopes": scopes,
        "created_at": now_s,
        "expires_at": expires_at,
    }
    connection.execute(insert(api_keys).values(row))


def find(connection: Connection, public_id: str) -> Row[Any] | None:
    """The key's row with `org_...`, `user` and both limits, None if there is no such key."""
    return cast("Row[Any] | None", connection.execute(FIND, {"public_id": public_id}).one_or_none())


def list_keys(connection: Connection, org_id: int) -> list[Row[Any]]:
    """All keys of an organisation, oldest first: revoked ones too, and expired ones (`is_over`)."""
    is_over = (api_keys.c.expires_at <= NOW_S).label("is_over")
    query = select(api_keys, is_over, users.c.name.label("user")).select_from(api_keys.outerjoin(users))
    return list(connection.execute(query.where(api_keys.c.org_id == org_id).order_by(api_keys.c.id)))


def revoke(connection: Connection, public_id: str, now_s: int) -> None:
    """Revokes a key for good; a second revocation changes nothing. Raises ValueError if there is no such key."""
    if find(connection, public_id) is None:
        raise ValueError(f"there is no key `{public_id}`; `key list --org NAME` shows the ids")
    still_valid = (api_keys.c.public_id == public_id) & api_keys.c.revoked_at.is_(None)
    connection.execute(update(api_keys).where(still_valid).values(revoked_at=now_s))


def mark_used(connection: Connection, row: Row[Any], key: Key, pepper: Keyring, now_s: int) -> None:
    """Records the hour of use, and re-signs the key under the newest pepper while its text is at hand."""
    hour = now_s - now_s % HOUR_S
    if row.last_used_at == hour and row.kid == pepper.kid:
        return
    fresh = {"last_used_at": hour, "kid": pepper.kid, "digest": pepper.sign(key.text.encode())}
    connection.execute(update(api_keys).where(api_keys.c.id == row.id).values(fresh))


def generations(connection: Connection) -> dict[str, int]:
    """Number of valid keys stored under each generation of the pepper, by kid."""
    is_valid = api_keys.c.revoked_at.is_(None) & (api_keys.c.expires_at.is_(None) | (api_keys.c.expires_at > NOW_S))
    counts = select(api_keys.c.kid, func.count()).where(is_valid).group_by(api_keys.c.kid)
    return {row[0]: row[1] for row in connection.execute(counts)}
