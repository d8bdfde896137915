"""Answers kept for `Idempotency-Key`, as SQL: every change of a row is one of these transactions.

The rows and bytes of each API key are counted with every change, so that no organisation can fill the database with
those of all its keys: beyond KEPT_REPLIES a new key is refused, beyond KEPT_REPLY_BYTES only the fact is kept. Rows are
locked before their count.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import BigInteger, Connection, Row, and_, bindparam, case, cast, delete, func, select, tuple_, update
from sqlalchemy.dialects import postgresql, sqlite

from contract.errors import IDEMPOTENCY_IN_PROGRESS, RATE_LIMIT_EXCEEDED
from contract.limits import KEPT_REPLIES, KEPT_REPLY_BYTES
from state.database.base import NOW_S, insert_new, now_s
from state.database.tables import api_keys, replies, reply_quotas

KEEP_S = 86_400
LEASE_S = 600
"""An attempt that is not renewed for this long has died, and its key is free again."""

AT_ONCE = 500
"""Old rows that are deleted in one transaction."""

LANES = 3
"""Transactions of one API key at a time in a process: they wait for its count, each with a connection."""

RECOUNT_S = 300
"""A count that is too high is recounted, but not more often than this."""

_key = (replies.c.key_id, replies.c.route, replies.c.idempotency_key)
_same_key = and_(
    replies.c.key_id == bindparam("of_key_id"),
    replies.c.route == bindparam("of_route"),
    replies.c.idempotency_key == bindparam("of_key"),
)
_same_attempt = _same_key & (replies.c.attempt == bindparam("of_attempt"))
_size = func.coalesce(func.length(replies.c.body), 0)
_FIND = select(replies, _size.label("size")).where(_same_key).with_for_update()
_CHANGE = update(replies).where(_same_attempt)
_FINISH = _CHANGE.where(replies.c.status.is_(None))
_RENEW = _FINISH.values(lease_until=NOW_S + LEASE_S)
_DROP = delete(replies).where(_same_attempt)
_is_old = replies.c.created_at <= NOW_S - KEEP_S
_old = select(*_key).where(_is_old).limit(AT_ONCE)
# PostgreSQL looks at this condition again, not at the list, where another transaction has just renewed a row.
_FORGET = delete(replies).where(_is_old, tuple_(*_key).in_(_old)).returning(replies.c.key_id, _size.label("size"))
_COUNT = select(func.count(), func.coalesce(func.sum(_size), 0)).where(replies.c.key_id == bindparam("of_key_id"))
_quota = reply_quotas.c
_sums = [cast(func.coalesce(func.sum(_quota[name]), 0), BigInteger) for name in ("replies", "body_bytes")]
_of_organisation = (_quota.key_id == bindparam("of_key_id")) | _quota.key_id.in_(
    select(api_keys.c.public_id).where(api_keys.c.org_id == bindparam("of_org_id"))
)
_QUOTAS: Any = select(*_sums).where(_of_organisation)
_OTHERS = _QUOTAS.where(_quota.key_id != bindparam("of_key_id"))
_KEYS = select(_quota.key_id).where(_of_organisation).order_by(_quota.key_id)


@dataclass(frozen=True, slots=True)
class Claim:
    """Row of one attempt. `kid` is the generation of the secret that the digest is keyed with."""

    org_id: int
    key_id: str
    route: str
    idempotency_key: str
    attempt: str
    body_sha256: str
    kid: str

    @property
    def where(self) -> dict[str, str]:
        """This attempt's row."""
        names = {"of_key_id": self.key_id, "of_route": self.route, "of_key": self.idempotency_key}
        return names | {"of_attempt": self.attempt}

    def lane(self) -> tuple[str, int]:
        """The turns in which it waits."""
        return self.key_id, hash(self.idempotency_key) % LANES


def claim(connection: Connection, holder: Claim) -> Row[Any] | None:
    """Inserts, and reads only on conflict. Returns None if this attempt has the key now, else the row that has it.

    Raises RATE_LIMIT_EXCEEDED beyond KEPT_REPLIES; the transaction must then roll back.
    """
    names = {"key_id": holder.key_id, "route": holder.route, "idempotency_key": holder.idempotency_key}
    fresh = {"attempt": holder.attempt, "body_sha256": holder.body_sha256, "kid": holder.kid}
    times = {"created_at": NOW_S, "lease_until": NOW_S + LEASE_S}
    if connection.execute(insert_new(connection, replies).values(**names, **fresh, **times)).rowcount:
        if _add_and_sum(connection, holder, replies=1)[0] > KEPT_REPLIES:
            raise RATE_LIMIT_EXCEEDED(
                f"{KEPT_REPLIES} answers are already stored for this organisation, each for 24 hours; send the request "
                "without `Idempotency-Key`, or later",
                retry_after_s=60,
            )
        return None
    row = connection.execute(_FIND, holder.where).one_or_none()
    if row is None:
        raise IDEMPOTENCY_IN_PROGRESS(
            "another request with this `Idempotency-Key` has just ended; send the request again",
            param="Idempotency-Key",
        )
    at_s = now_s(connection)
    is_dead = row.status is None and row.lease_until <= at_s
    if not is_dead and row.created_at > at_s - KEEP_S:
        return row
    emptied = {"status": None, "headers": None, "body": None}
    connection.execute(_CHANGE.values(**emptied, **fresh, **times), holder.where | {"of_attempt": row.attempt})
    _add(connection, holder.key_id, 0, -row.size)
    return None


def keep(connection: Connection, holder: Claim, status: int, headers: str, body: bytes | None) -> None:
    """Stores the answer of an attempt that still has its key, once; without the body where there is no room for it."""
    stored = connection.execute(_FINISH.values(status=status, headers=headers, body=body), holder.where).rowcount
    if stored and body and _add_and_sum(connection, holder, body_bytes=len(body))[1] > KEPT_REPLY_BYTES:
        connection.execute(_CHANGE.values(body=None), holder.where)
        _add(connection, holder.key_id, 0, -len(body))


def drop(connection: Connection, holder: Claim) -> None:
    """Frees the key of an attempt that still has it."""
    if connection.execute(_DROP, holder.where).rowcount:
        _add(connection, holder.key_id, -1, 0)


def renew(connection: Connection, running: Collection[Claim]) -> None:
    """Extends the leases of attempts under way."""
    ordered = sorted(running, key=lambda holder: (holder.key_id, holder.route, holder.idempotency_key))
    connection.execute(_RENEW, [holder.where for holder in ordered])


def forget(connection: Connection) -> int:
    """Deletes up to AT_ONCE rows that are older than 24 hours. Returns how many."""
    gone = list(connection.execute(_FORGET))
    for key_id in sorted({row.key_id for row in gone}):
        sizes = [row.size for row in gone if row.key_id == key_id]
        _add(connection, key_id, -len(sizes), -sum(sizes))
    return len(gone)


def _add_and_sum(connection: Connection, holder: Claim, *, replies: int = 0, body_bytes: int = 0) -> tuple[int, int]:
    """Adds to the count of an API key.

    Returns the replies and bytes of its organisation, recounted where they seem too much.
    """
    names = {"of_key_id": holder.key_id, "of_org_id": holder.org_id}
    # Read first: from its count to the commit, all that use this key wait.
    of_others = connection.execute(_OTHERS, names).one()
    own = _add(connection, holder.key_id, replies, body_bytes)
    count, size = own.replies + of_others[0], own.body_bytes + of_others[1]
    if (count > KEPT_REPLIES or size > KEPT_REPLY_BYTES) and own.counted_at < now_s(connection) - RECOUNT_S:
        for key_id in connection.execute(_KEYS, names).scalars().all():
            rows, size = connection.execute(_COUNT, {"of_key_id": key_id}).one()
            recount = update(reply_quotas).where(_quota.key_id == key_id)
            connection.execute(recount.values(replies=rows, body_bytes=size, counted_at=NOW_S))
        count, size = connection.execute(_QUOTAS, names).one()
    return count, size


def _add(connection: Connection, key_id: str, rows: int, body_bytes: int) -> Row[Any]:
    """Adds to the count of an API key, and returns it."""
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    # Never below zero: an older version beside this one writes rows without counting them.
    by = {"replies": rows, "body_bytes": body_bytes}
    changed = {name: case((_quota[name] + by[name] > 0, _quota[name] + by[name]), else_=0) for name in by}
    statement = dialect.insert(reply_quotas).values(key_id=key_id, **{name: max(0, by[name]) for name in by})
    upsert = statement.on_conflict_do_update(index_elements=["key_id"], set_=changed).returning(*_quota)
    return connection.execute(upsert).one()
