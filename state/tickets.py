"""Tickets for uploads: each lets one recording in, and is good for one transcription.

    issued      issue               nothing has come
    uploaded    uploaded            the bytes of one PUT are in `blobs`, on the disk
    consumed    consume             a transcription has it; no other gets it any more
    gone        discard, sweep      the bytes are deleted; the row too, once its address has expired

The bytes of each PUT have a name of their own in the folder of their ticket: a PUT that comes too late replaces
nothing, and what a dead process left lies where `sweep` looks.
"""

from __future__ import annotations

import base64
import logging
import math
import re
import secrets
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, cast

from sqlalchemy import Connection, Row, and_, delete, func, insert, or_, select, update

from contract.access import Caller
from contract.errors import NOT_FOUND, STORE_FULL, TOO_MANY_UPLOADS, without_text
from contract.limits import OPEN_UPLOADS, UPLOAD_S
from state.accounts import organisations
from state.blobs.base import Blobs
from state.database.base import NOW_S, Database, now_s
from state.database.tables import tickets

log = logging.getLogger(f"parlance.{__name__}")

TicketState = Literal["issued", "uploaded", "consumed"]

FOLDER = "uploads"
"""Folder of `blobs` in which uploads are stored."""

ID_PATTERN = re.compile(r"upl_[a-z2-7]{26}", re.ASCII)

AT_WORK_S = 900
"""Longer than any transcription reads its recording, and than any PUT continues after its address has expired."""

SWEPT_AT_ONCE = 50
ROUNDS = 20
"""Times that this many are swept at once: what is left then waits for the next sweep."""

SWEEP_AGAIN_S = 300
"""Pause after bytes could not be deleted."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """A ticket.

    Attributes:
        id: `upl_` and 128 random bits.
        size_bytes: length that the recording may have.
        blob: name of the recording in `State.blobs`; empty until it is uploaded.
        expires_at: seconds since 1970, by the database's clock as all times here.
    """

    id: str
    org_id: int
    content_type: str
    size_bytes: int
    state: TicketState
    blob: str
    expires_at: int

    @property
    def name(self) -> str:
        """Folder of its bytes, for which its address is signed."""
        return f"{FOLDER}/{self.id}"

    def new_blob(self) -> str:
        """A name for the bytes of one PUT."""
        return f"{self.name}/{secrets.token_hex(8)}"


class Tickets:
    """The store of tickets.

    Args:
        database: database of the rows.
        blobs: store of recordings.
    """

    def __init__(self, database: Database, blobs: Blobs) -> None:
        self._database = database
        self._blobs = blobs

    async def issue(self, caller: Caller, content_type: str, size_bytes: int, free: float = math.inf) -> Ticket:
        """A new ticket of the caller's organisation; `free` is how many bytes all uploads together may still take.

        Raises TOO_MANY_UPLOADS beyond OPEN_UPLOADS open ones, and where those of the organisation would take more than
        they leave to others; STORE_FULL where the new one alone would.
        """
        issue = partial(_issue, org_id=caller.org_id, content_type=content_type, size_bytes=size_bytes, free=free)
        return await self._database.run(issue, row=caller.org_id)

    async def find(self, ticket_id: str) -> Ticket | None:
        """A ticket in any state; None if there is none."""
        if not ID_PATTERN.fullmatch(ticket_id):
            return None
        query = select(tickets).where(tickets.c.id == ticket_id)
        row = await self._database.run(lambda connection: connection.execute(query).one_or_none())
        return None if row is None else _ticket(row)

    async def uploaded(self, ticket_id: str, blob: str) -> bool:
        """Gives the ticket its recording. The bytes are stored already.

        False if it has one, or is used or expired: the caller has to delete the bytes.
        """
        where = (tickets.c.id == ticket_id, tickets.c.state == "issued", tickets.c.expires_at > NOW_S)
        change = update(tickets).where(*where).values(state="uploaded", blob=blob)
        return await self._database.run(lambda connection: connection.execute(change).rowcount == 1)

    async def consume(self, org_id: int, ticket_id: str) -> Ticket:
        """The ticket, for one transcription; of any number that ask, one gets it.

        Raises NOT_FOUND, in the same words for a ticket that never was, that is another organisation's, used or
        expired. Where nothing was uploaded it says so, and the ticket is used up all the same.
        """
        row = await self._consume(org_id, ticket_id) if ID_PATTERN.fullmatch(ticket_id) else None
        if row is None:
            raise NOT_FOUND(
                f"there is no upload `{ticket_id[:60]}`, or it has been used or has expired; an upload serves one "
                "transcription, so get a new ticket",
                param="upload_id",
            )
        if not row.blob:
            raise NOT_FOUND(
                f"nothing was uploaded under `{ticket_id}`, and the ticket is used now; get a new ticket, and PUT "
                "the bytes",
                param="upload_id",
            )
        return _ticket(row)

    async def discard(self, ticket: Ticket) -> bool:
        """Deletes the bytes after the transcription. Returns False where the store fails: `sweep` does it then."""
        try:
            await self._blobs.delete_all(ticket.name)
            return True
        except Exception as error:
            log.error("the bytes of an upload could not be deleted yet: %s", without_text(error))
            return False

    async def sweep(self) -> None:
        """Deletes bytes of used and expired tickets that are still there, and rows with an expired address."""
        after = (0, "")
        for _ in range(ROUNDS):
            rows = await self._database.run(partial(_due, after=after), patient=True)
            for row in rows:
                try:
                    await self._sweep(_ticket(row), row.now_s)
                except Exception as error:
                    # One ticket must not keep the others from being swept.
                    log.error("could not clean up an expired ticket: %s", without_text(error))
            if len(rows) < SWEPT_AT_ONCE:
                break
            after = (rows[-1].sweep_at, rows[-1].id)

    async def _consume(self, org_id: int, ticket_id: str) -> Row[Any] | None:
        change = (
            update(tickets)
            .where(tickets.c.id == ticket_id, tickets.c.org_id == org_id)
            .where(tickets.c.state != "consumed", tickets.c.expires_at > NOW_S)
            .values(state="consumed", sweep_at=NOW_S + AT_WORK_S)
            .returning(*tickets.c)
        )
        return await self._database.run(lambda connection: connection.execute(change).one_or_none())

    async def _sweep(self, ticket: Ticket, at_s: int) -> None:
        """A row is kept while a PUT could still come for it: what that leaves is swept too."""
        again_at = ticket.expires_at + AT_WORK_S if await self.discard(ticket) else at_s + SWEEP_AGAIN_S
        same = tickets.c.id == ticket.id
        change = (
            update(tickets).where(same).values(sweep_at=again_at) if again_at > at_s else delete(tickets).where(same)
        )
        await self._database.run(lambda connection: connection.execute(change))


def _new_id() -> str:
    return f"upl_{base64.b32encode(secrets.token_bytes(16)).decode().rstrip('=').lower()}"


OPEN = or_(tickets.c.state != "consumed", tickets.c.blob == "")
"""Bytes lie under a ticket, or may come. Even where it was used before: they may be on their way, and where they go no
other process knows."""


def _issue(connection: Connection, org_id: int, content_type: str, size_bytes: int, free: float) -> Ticket:
    organisations.lock(connection, org_id)
    mine = (tickets.c.org_id == org_id, OPEN, tickets.c.expires_at > NOW_S)
    count = connection.execute(select(func.count()).select_from(tickets).where(*mine)).scalar_one()
    if count >= OPEN_UPLOADS:
        raise TOO_MANY_UPLOADS(
            f"your organisation has {count} tickets that are unused or were used before an upload, which is its "
            "limit; upload to some and use them, or wait until they expire"
        )
    if free < math.inf:
        _require_space(connection, org_id, size_bytes, free)
    ticket = Ticket(_new_id(), org_id, content_type, size_bytes, "issued", "", now_s(connection) + UPLOAD_S)
    row = {name: getattr(ticket, name) for name in COLUMNS}
    connection.execute(insert(tickets).values(**row, sweep_at=ticket.expires_at + AT_WORK_S))
    return ticket


def _require_space(connection: Connection, org_id: int, size_bytes: int, free: float) -> None:
    """An organisation has at most as much of the disk as stays free once all bytes have come that were promised.

    Expired tickets count, too, until their bytes have been swept.
    """
    total = func.coalesce(func.sum(tickets.c.size_bytes), 0)
    promised = connection.execute(select(total).where(tickets.c.blob == "")).scalar_one()
    promised_here = connection.execute(select(total).where(OPEN, tickets.c.org_id == org_id)).scalar_one()
    stays_free = free - int(promised) - size_bytes
    if size_bytes > stays_free:
        log.warning("the disk for recordings is full: tickets have reserved all but %d bytes", stays_free + size_bytes)
        raise STORE_FULL()
    if promised_here + size_bytes > stays_free:
        raise TOO_MANY_UPLOADS(
            f"your organisation has unused tickets for {promised_here} bytes, and {size_bytes} bytes more would leave "
            "too little of the disk to others; upload to some and use them, or wait until they expire"
        )


def _due(connection: Connection, after: tuple[int, str]) -> list[Row[Any]]:
    """Rows to be swept after (`sweep_at`, `id`), the oldest first, each with the database's time."""
    at, id = tickets.c.sweep_at, tickets.c.id
    query = select(tickets, NOW_S.label("now_s")).where(at <= NOW_S)
    query = query.where(or_(at > after[0], and_(at == after[0], id > after[1])))
    return list(connection.execute(query.order_by(at, id).limit(SWEPT_AT_ONCE)))


COLUMNS = ("id", "org_id", "content_type", "size_bytes", "state", "blob", "expires_at")
"""Columns of `tickets` that are fields of a Ticket."""


def _ticket(row: Row[Any]) -> Ticket:
    return Ticket(**cast(dict[str, Any], {name: getattr(row, name) for name in COLUMNS}))
