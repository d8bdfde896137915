"""What is done against the death of a process, a bounded number of requests at a time.

Each marks what its own requests have used, bills them when it is told to end, ends what dead ones left, and deletes
what is old.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from sqlalchemy import Connection, Row, and_, bindparam, delete, or_, select

from contract.errors import without_text
from state.billing import postings
from state.billing.postings import EXPIRED
from state.billing.reservation import Reservation
from state.database.base import NOW_S, Database
from state.database.tables import reservations

log = logging.getLogger(f"parlance.{__name__}")

KEEP_S = 86_400
"""How long an ended reservation is kept after its lease."""

ROUNDS = 20
"""Transactions of one clean-up: what is left then waits for the next one."""

SETTLE_S = 5.0
"""Ray kills some seconds after SIGTERM."""

MARKS_AT_ONCE = 200
"""Marks or leases that are written in one transaction."""

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


class Marks:
    """Records what open requests of this process have used, so that another process can bill it.

    Attributes:
        under_way: marks that are being written, by the id of their reservation.
    """

    def __init__(self, database: Database, spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]) -> None:
        self.under_way: dict[str, asyncio.Task[None]] = {}
        self._database = database
        self._spawn = spawn

    async def record(self, holds: Sequence[Reservation]) -> None:
        """Writes the marks of those that have not ended meanwhile, whatever becomes of who asks for it."""
        for start in range(0, len(holds), MARKS_AT_ONCE):
            open_now = [hold for hold in holds[start : start + MARKS_AT_ONCE] if not hold.has_ended]
            if not open_now:
                continue
            writing = self._spawn(self._write(open_now))
            self.under_way |= dict.fromkeys((hold.entry.id for hold in open_now), writing)
            await asyncio.wait([writing])

    async def _write(self, holds: Sequence[Reservation]) -> None:
        marks = {hold.entry: hold.used for hold in holds}
        new = [hold.entry for hold in holds if not hold.held_micro_eur and hold.marked is None]
        for hold in holds:
            hold.is_stored = True
        try:
            # Not durable: it is a crash of this process that it is for.
            await self._database.run(partial(postings.mark, marks=marks, new=new), durable=False)
        except Exception as error:
            log.error("could not record the usage of %d requests: %s", len(holds), without_text(error))
        else:
            for hold in holds:
                hold.marked = marks[hold.entry]
        finally:
            for hold in holds:
                self.under_way.pop(hold.entry.id, None)


async def renew(database: Database, ids: Sequence[str]) -> None:
    """Extends the leases of reservations."""
    for start in range(0, len(ids), MARKS_AT_ONCE):
        batch = ids[start : start + MARKS_AT_ONCE]
        await database.run(partial(postings.renew, ids=batch), patient=True)


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
        log.error("could not end the orphaned reservation of request %s: %s", request_id, without_text(error))
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


def run_at_exit(work: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Has `work` done in the running event loop when the process ends, if that loop runs in another thread still.

    Serve lets a replica finish its requests, and closes the state then. Past that it kills without notice, and what was
    marked is billed by another process. In between is the node that is stopped: Ray sends SIGTERM, by which a worker
    ends as Python ends, through `atexit`. Returns what takes it back.
    """
    loop = asyncio.get_running_loop()

    def settle() -> None:
        if not loop.is_running():
            return
        try:
            asyncio.run_coroutine_threadsafe(work(), loop).result(SETTLE_S)
        except Exception as error:
            log.error("could not bill the open requests at shutdown: %s", without_text(error))

    atexit.register(settle)
    return lambda: atexit.unregister(settle)
