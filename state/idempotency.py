"""`Idempotency-Key`: a POST that is sent twice runs once. Answers are kept for 24 hours.

begin -> Attempt          a new key: do the work, then `finish` or `abandon`
      -> StoredReply      a finished one: send the same answer again
      -> raises           still running (409), used with another body (422), answer not kept (409)
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Delete, Row, Update, and_, bindparam, delete, select, update

from contract.access import Caller
from contract.errors import IDEMPOTENCY_FINISHED, IDEMPOTENCY_IN_PROGRESS, IDEMPOTENCY_MISMATCH, INVALID_REQUEST
from state.database.base import Database, insert_new
from state.database.tables import replies

HEADER = "Idempotency-Key"
KEY_PATTERN = re.compile(r"[\x21-\x7e]{1,255}")
KEEP_S = 86_400
LEASE_S = 600
"""Longer than any request may run. When it expires, the key of a crashed request is free again."""

MAX_BODY_BYTES = 256 * 1024

_same_key = and_(
    replies.c.key_id == bindparam("of_key_id"),
    replies.c.route == bindparam("of_route"),
    replies.c.idempotency_key == bindparam("of_key"),
)
_same_attempt = _same_key & (replies.c.attempt == bindparam("of_attempt"))
_FIND = select(replies).where(_same_key).with_for_update()
_TAKE_OVER = update(replies).where(_same_attempt)


@dataclass(frozen=True, slots=True)
class StoredReply:
    """The answer that the first request got."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)


class Idempotency:
    """Answers by key.

    Args:
        database: where they are kept.
        wall: clock in seconds since 1970.
    """

    def __init__(self, database: Database, wall: Callable[[], float] = time.time) -> None:
        self._database = database
        self._wall = wall

    async def begin(self, caller: Caller, route: str, key: str, body_sha256: str) -> Attempt | StoredReply:
        """Claims `key` for this caller and route.

        Raises INVALID_REQUEST for a malformed key, IDEMPOTENCY_IN_PROGRESS, IDEMPOTENCY_MISMATCH,
        IDEMPOTENCY_FINISHED, STATE_UNAVAILABLE.
        """
        if not KEY_PATTERN.fullmatch(key):
            raise INVALID_REQUEST(f"`{HEADER}` must be 1 to 255 visible ASCII characters", param=HEADER)
        names = {"key_id": caller.key_id, "route": route, "idempotency_key": key}
        now_s = int(self._wall())
        attempt = uuid.uuid4().hex
        claim: dict[str, str | int] = {
            "attempt": attempt,
            "body_sha256": body_sha256,
            "created_at": now_s,
            "lease_until": now_s + LEASE_S,
        }
        earlier = await self._database.run(lambda connection: _claim(connection, names, claim, now_s))
        if earlier is None:
            return Attempt(self._database, names, attempt)
        return _replay(earlier, key, body_sha256)

    async def forget_old(self) -> None:
        """Deletes answers older than 24 hours."""
        before_s = int(self._wall()) - KEEP_S
        await self._database.run(_executes(delete(replies).where(replies.c.created_at <= before_s)))


class Attempt:
    """The request that does the work. End it with `finish` or `abandon`; after a crash its lease ends it."""

    def __init__(self, database: Database, names: Mapping[str, str], attempt: str) -> None:
        self._database = database
        self._where = {
            "of_key_id": names["key_id"],
            "of_route": names["route"],
            "of_key": names["idempotency_key"],
            "of_attempt": attempt,
        }

    async def finish(self, status: int, headers: Mapping[str, str], body: bytes | None) -> None:
        """Keeps the answer for repetitions.

        Without a body (None, or more than 256 KiB) only the fact is kept, for answers that must not be stored and for
        streams. Repetitions are then refused.
        """
        kept = body if body is not None and len(body) <= MAX_BODY_BYTES else None
        values = {"status": status, "headers": json.dumps(dict(headers)), "body": kept}
        await self._database.run(_executes(update(replies).where(_same_attempt).values(values), self._where))

    async def abandon(self) -> None:
        """Frees the key: nothing was done, and the client may retry."""
        await self._database.run(_executes(delete(replies).where(_same_attempt), self._where))


def _claim(
    connection: Connection, names: Mapping[str, str], claim: Mapping[str, str | int], now_s: int
) -> Row[Any] | None:
    """Inserts, and reads only on conflict. Returns None if this attempt has the key now, else the row that has it."""
    if connection.execute(insert_new(connection, replies), {**names, **claim}).rowcount:
        return None
    where = {"of_key_id": names["key_id"], "of_route": names["route"], "of_key": names["idempotency_key"]}
    row = connection.execute(_FIND, where).one_or_none()
    if row is None:
        raise IDEMPOTENCY_IN_PROGRESS(f"another request with this `{HEADER}` ended just now", param=HEADER)
    crashed = row.status is None and row.lease_until <= now_s
    if not crashed and row.created_at > now_s - KEEP_S:
        return row
    fresh = {"status": None, "headers": None, "body": None, **claim}
    connection.execute(_TAKE_OVER.values(fresh), {**where, "of_attempt": row.attempt})
    return None


def _replay(row: Row[Any], key: str, body_sha256: str) -> StoredReply:
    if row.body_sha256 != body_sha256:
        raise IDEMPOTENCY_MISMATCH(f"`{HEADER}` {key} was used with another body; take a new key", param=HEADER)
    if row.status is None:
        raise IDEMPOTENCY_IN_PROGRESS(f"the first request with `{HEADER}` {key} is still running", param=HEADER)
    if row.body is None:
        raise IDEMPOTENCY_FINISHED(f"the request with `{HEADER}` {key} is done, its answer is not kept", param=HEADER)
    return StoredReply(row.status, json.loads(row.headers), row.body)


def _executes(statement: Delete | Update, values: Mapping[str, str] | None = None) -> Callable[[Connection], None]:
    def transaction(connection: Connection) -> None:
        connection.execute(statement, values)

    return transaction
