"""Recovery from the death of a process: marks of its own requests, ends of others', and removal of old rows."""

from __future__ import annotations

import asyncio
import atexit
import logging
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from sqlalchemy import Connection, Row, and_, bindparam, case, delete, or_, select, update

from contract.errors import without_text
from state.billing import postings
from state.billing.postings import LEASE_S
from state.billing.reservation import Funds, Reservation, Step
from state.billing.usage import NO_USAGE, Bill, Entry, PurseGone, Usage
from state.database.base import INSERTS, NOW_S, Database, insert_new
from state.database.tables import reservations, usage_lines

log = logging.getLogger(f"parlance.{__name__}")

KEEP_S = 86_400
"""Seconds for which an ended reservation is kept after its lease."""

ROUNDS = 20
"""Transactions of one clean-up: what is left then waits for the next one."""

EXIT_S = 12.0
"""For the work at the end of a process: more than a ledger takes to close. Ray may kill before."""

MARKS_AT_ONCE = 200
"""Marks or leases that are written in one transaction."""

AT_ONCE = 100
"""Orphans that are looked up, and old rows that are deleted, in one transaction."""

EXPIRED = (reservations.c.state == "held") & (reservations.c.lease_until < NOW_S)
_RECOVER = (
    update(reservations)
    .where(reservations.c.id == bindparam("of_id"), EXPIRED)
    .values(state=case((reservations.c.used_quantity > 0, "settled"), else_="void"))
    .returning(*reservations.c)
)
_ROWS = {
    dialect: new(reservations)
    .on_conflict_do_nothing()
    .values(state="held", created_at=NOW_S, lease_until=NOW_S + LEASE_S)
    .returning(reservations.c.id)
    for dialect, new in INSERTS.items()
}
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
            batch = holds[start : start + MARKS_AT_ONCE]
            while earlier := {self.under_way[hold.entry.id] for hold in batch if hold.entry.id in self.under_way}:
                await asyncio.wait(earlier)
            open_now = [hold for hold in batch if not hold.has_ended]
            if not open_now:
                continue
            writing = self._spawn(self._write(open_now))
            self.under_way |= dict.fromkeys((hold.entry.id for hold in open_now), writing)
            await asyncio.wait([writing])

    async def written(self, entry: Entry) -> None:
        """Waits for a mark on its way: its row must not come after the end of the request."""
        if writing := self.under_way.get(entry.id):
            await asyncio.wait([writing])

    async def _write(self, requests: Sequence[Reservation]) -> None:
        holds = [hold for hold in requests if not hold.has_ended]
        bills = [_marked(hold) for hold in holds]
        try:
            # Not durable: it is a crash of this process that it is for.
            if bills:
                await self._database.run(partial(mark, bills=bills), durable=False)
        except PurseGone as gone:
            # Nothing is held for these any more, but what they use has to be recorded all the same.
            for hold in holds:
                if hold.purse is not None and hold.purse.entry.id == gone.purse_id:
                    hold.purse.is_gone = True
                    hold.move(Step.LOSE)
            await self._write(holds)
        except Exception as error:
            log.error("could not record the usage of %d requests: %s", len(holds), without_text(error))
        else:
            for hold, bill in zip(holds, bills, strict=True):
                hold.recorded(bill.used)
        finally:
            for hold in requests:
                self.under_way.pop(hold.entry.id, None)


def _marked(hold: Reservation) -> Bill:
    """The record of a request so far. From now on it may have a row."""
    has_row = hold.funds is Funds.ROW
    hold.move(Step.MARK)
    purse_id, covered = (hold.purse.entry.id, hold.held_micro_eur) if hold.purse else (None, 0)
    return Bill(hold.entry, hold.used, has_row=has_row, purse_id=purse_id, covered_micro_eur=covered)


async def renew(database: Database, ids: Sequence[str]) -> None:
    """Extends the leases of reservations."""
    for start in range(0, len(ids), MARKS_AT_ONCE):
        batch = ids[start : start + MARKS_AT_ONCE]
        await database.run(partial(_renew, ids=batch), patient=True)


async def reap(database: Database, is_ours: Callable[[str], bool]) -> int:
    """Ends reservations with an expired lease, but not those of this process. Returns how many."""
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
        used = await database.run(partial(recover, reservation_id=reservation_id), patient=True)
    except Exception as error:
        # One row must not keep the others from being ended.
        log.error("could not end the orphaned reservation of request %s: %s", request_id, without_text(error))
        return False
    if used is not None and used.quantity:
        log.warning("billed request %s of a dead process: %d %s", request_id, used.quantity, used.unit)
    elif used is not None:
        log.warning("released the reservation of request %s of a dead process", request_id)
    return used is not None


def mark(connection: Connection, bills: Sequence[Bill]) -> None:
    """Records what requests have used so far, and extends their leases.

    Those without a row get one, with what their purse holds for them. Raises PurseGone.
    """
    new = {bill.entry.id: bill for bill in bills if not bill.has_row}
    added = set()
    if new:
        rows = [postings.columns(bill.entry) | {"held_micro_eur": bill.covered_micro_eur} for bill in new.values()]
        added = set(connection.execute(_ROWS[connection.dialect.name], rows).scalars())
    ordered = sorted(bills, key=lambda bill: bill.entry.id)
    connection.execute(postings.MARK, [postings.values(bill.used) | {"of_id": bill.entry.id} for bill in ordered])
    postings.pay(connection, postings.covered(new[id] for id in added))


def owe(connection: Connection, bill: Bill) -> bool:
    """Marks a bill that could not be recorded, for another process to record it. Raises PurseGone.

    Returns whether one will, or has: False if its reservation has ended without it.
    """
    mark(connection, [replace(bill, has_row=False)])
    is_held = bool(connection.execute(postings.RENEW, {"of_id": bill.entry.id}).rowcount)
    return is_held or bool(connection.execute(postings.COSTS, {"of_ids": [bill.entry.id]}).all())


def _renew(connection: Connection, ids: Collection[str]) -> None:
    """Extends the leases of held reservations."""
    connection.execute(postings.RENEW, [{"of_id": reservation_id} for reservation_id in sorted(ids)])


def recover(connection: Connection, reservation_id: str) -> Usage | None:
    """Ends a reservation with an expired lease: bills what was marked, releases what was held.

    Returns what was used, NO_USAGE if no mark was made, None if another process was faster or the lease was renewed.
    """
    if (row := connection.execute(_RECOVER, {"of_id": reservation_id}).one_or_none()) is None:
        return None
    entry = Entry(row.id, row.org_id, row.user_id, row.key_id, row.request_id, row.line, row.model)
    used = Usage(row.used_micro_eur, row.used_quantity, row.used_unit or "", row.used_quantities)
    released = {entry.id: row.held_micro_eur}
    if not used.quantity:
        postings.move_budgets(connection, [entry], released, {})
        return NO_USAGE
    bill = Bill(entry, used)
    charged = postings.charges(connection, [bill], released)
    line = postings.line(bill, charged) | {"at_ms": 1000 * (row.lease_until - LEASE_S), "recovered": 1}
    is_new = connection.execute(insert_new(connection, usage_lines), line).rowcount
    postings.move_budgets(connection, [entry], released, charged if is_new else {})
    return used


def orphans(connection: Connection, after: tuple[int, str] = (0, "")) -> list[Row[Any]]:
    """Up to AT_ONCE held reservations with an expired lease, oldest first, after (`lease_until`, `id`)."""
    return list(connection.execute(_ORPHANS, {"after_lease": after[0], "after_id": after[1]}))


def forget(connection: Connection, kept_s: int) -> int:
    """Deletes up to AT_ONCE ended reservations with a lease that expired `kept_s` ago; their usage lines stay."""
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
            asyncio.run_coroutine_threadsafe(work(), loop).result(EXIT_S)
        except Exception as error:
            log.error("could not bill the open requests at shutdown: %s", without_text(error))

    atexit.register(settle)
    return lambda: atexit.unregister(settle)
