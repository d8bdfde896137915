"""What each process does for all: ends what dead ones left, and deletes what is old, a bounded number at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from contract.errors import without_text
from state.billing import postings
from state.database.base import Database

log = logging.getLogger(f"parlance.{__name__}")

KEEP_S = 86_400
"""How long an ended reservation is kept after its lease."""

ROUNDS = 20
"""Transactions of one clean-up: what is left then waits for the next one."""


async def reap(database: Database, is_ours: Callable[[str], bool]) -> int:
    """Ends reservations whose lease has expired, but not those of this process. Returns how many."""
    ended, after = 0, (0, "")
    for _ in range(ROUNDS):
        rows = await database.run(partial(postings.orphans, after=after), patient=True)
        for row in rows:
            if not is_ours(row.id):
                ended += await _recover(database, row.id, row.request_id)
        if len(rows) < postings.AT_ONCE:
            break
        after = (rows[-1].lease_until, rows[-1].id)
    return ended


async def forget_old(database: Database) -> None:
    """Deletes reservations that ended a day ago; their usage lines stay."""
    for _ in range(ROUNDS):
        if await database.run(partial(postings.forget, kept_s=KEEP_S), patient=True) < postings.AT_ONCE:
            break


async def _recover(database: Database, reservation_id: str, request_id: str) -> bool:
    try:
        used = await database.run(partial(postings.recover, reservation_id=reservation_id), patient=True)
    except Exception as error:
        # One row must not keep the others from being ended.
        log.error("could not end the orphaned reservation of request %s: %s", request_id, without_text(error))
        return False
    if used is not None and used.quantity:
        log.warning("billed request %s of a dead process: %d %s", request_id, used.quantity, used.unit)
    elif used is not None:
        log.warning("released the reservation of request %s of a dead process", request_id)
    return used is not None
