"""What each process does for all: ends what dead ones left, and deletes what is old, a bounded number at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from sqlalchemy import Connection, Row, and_, bindparam, delete, or_, select

from contract.errors import without_text
from state.billing import postings
from state.billing.postings import EXPIRED
from state.database.base import NOW_S, Database
from state.database.tables import reservations

log = logging.getLogger(f"parlance.{__name__}")

KEEP_S = 86_400
"""How long an ended reservation is kept after its lease."""

ROUNDS = 20
"""Transactions of one clean-up: what is left then waits for the next one."""


AT_ONCE = 100
"""Orphans that are looked up, and old rows that are deleted, in one transaction."""

_ORPHANS = (
    select(reservations)
    .where(EXPIRED)
    .where(
        or_(
            reservations.c.lease_until > bindparam("after_lease"),
            and_(reservations.c.lease_until == bindparam("after_lease"), reservations.c.id > bindparam("after_id")),
        )
    )
    .order_by(reservations.c.lease_until, reservations.c.id)
    .limit(AT_ONCE)
)
_old = (
    select(reservations.c.id)
    .where(reservations.c.state.in_(("settled", "void")), reservations.c.lease_until < NOW_S - bindparam("kept_s"))
    .limit(AT_ONCE)
)
_FORGET = delete(reservations).where(reservations.c.id.in_(_old))


async def reap(database: Database, is_ours: Callable[[str], bool]) -> int:
    """Ends reservations whose lease has expired, but not those of this process. Returns how many."""
    ended, after = 0, (0, "")
    for _ in range(ROUNDS):
        rows = await database.run(partial(orphans, after=after), patient=True)
        for row in rows:
            if not is_ours(row.id):
                ended += await _recover(database, row.id, row.request_id)
        if len(rows) < AT_ONCE:
            break
        after = (rows[-1].lease_until, rows[-1].id)
    return ended


async def forget_old(database: Database) -> None:
    """Deletes reservations that ended a day ago; their usage lines stay."""
    for _ in range(ROUNDS):
        if await database.run(partial(forget, kept_s=KEEP_S), patient=True) < AT_ONCE:
            break


async def _recover(database: Database, reservation_id: str, request_id: str) -> bool:
    try:
        used = await database.run(partial(postings.recover, reservation_id=reservation_id), patient=True)
    except Exception as error:
        # One row must not keep the others from being ended.
        log.error("the orphaned reservation of request %s could not be ended: %s", request_id, without_text(error))
        return False
    if used is not None and used.quantity:
        log.warning("billed request %s of a dead process: %d %s", request_id, used.quantity, used.unit)
    elif used is not None:
        log.warning("released the reservation of request %s of a dead process", request_id)
    return used is not None


def orphans(connection: Connection, after: tuple[int, str] = (0, "")) -> list[Row[Any]]:
    """Up to AT_ONCE held reservations whose lease has expired, oldest first, after (`lease_until`, `id`)."""
    return list(connection.execute(_ORPHANS, {"after_lease": after[0], "after_id": after[1]}))


def forget(connection: Connection, kept_s: int) -> int:
    """Deletes up to AT_ONCE ended reservations whose lease expired so long ago; their usage lines stay."""
    return connection.execute(_FORGET, {"kept_s": kept_s}).rowcount
