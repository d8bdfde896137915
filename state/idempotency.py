"""`Idempotency-Key`: a POST that is sent twice runs once. Answers are kept for 24 hours.

begin -> Attempt          a new key: do the work, then `finish` or `abandon`
      -> StoredReply      a finished one: send the same answer again
      -> raises           still running (409), used with another body (422), answer not kept (409), too many kept (429)

The lease of an attempt is renewed while its work runs, however long that takes; it only ever ends by itself when the
process has died. Bodies of requests are known by a digest that is keyed with a secret of this service: a reader of the
database cannot try out what a short body may have been.
"""

from __future__ import annotations

import json
import math
import re
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from weakref import WeakSet

from sqlalchemy import Row

from concurrency.background import attempted, in_background
from contract.access import Caller
from contract.errors import (
    IDEMPOTENCY_FINISHED,
    IDEMPOTENCY_IN_PROGRESS,
    IDEMPOTENCY_MISMATCH,
    INVALID_REQUEST,
    STATE_UNAVAILABLE,
    ApiError,
)
from contract.limits import SPARE_BYTES
from state import replies
from state.database.base import Database
from state.keys import Keyring
from state.replies import Claim
from state.retries import Spawn, retried

PURPOSE = "idempotency"
"""Purpose of the derived secret that digests are keyed with."""

HEADER = "Idempotency-Key"
KEY_PATTERN = re.compile(r"[\x21-\x7e]{1,255}")
MAX_BODY_BYTES = 256 * 1024

RENEWED_AT_ONCE = 200
ROUNDS = 20
"""Transactions of one clean-up: what is left then waits for the next one."""


@dataclass(frozen=True, slots=True)
class StoredReply:
    """The answer that the first request got."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)


class Idempotency:
    """Answers by key.

    Args:
        database: database of the keys; leases are by its clock.
        keyring: of PURPOSE.

    Attributes:
        free_bytes: free space of the disk of the database, of which SPARE_BYTES are left to others.
        spawn: starts work that outlives its request; of a `State`, its `Ledger.spawn`.
    """

    def __init__(self, database: Database, keyring: Keyring) -> None:
        self._database = database
        self._keyring = keyring
        self.free_bytes: Callable[[], float] = lambda: math.inf
        self.spawn: Spawn = in_background
        self._running: WeakSet[Attempt] = WeakSet()
        self._lost: deque[Claim] = deque(maxlen=RENEWED_AT_ONCE)

    async def begin(self, caller: Caller, route: str, key: str, body_sha256: str) -> Attempt | StoredReply:
        """Claims `key` for this caller and route.

        Raises INVALID_REQUEST for a malformed key, IDEMPOTENCY_IN_PROGRESS, IDEMPOTENCY_MISMATCH,
        IDEMPOTENCY_FINISHED, RATE_LIMIT_EXCEEDED if too many answers are kept, STATE_UNAVAILABLE.
        """
        if not KEY_PATTERN.fullmatch(key):
            raise INVALID_REQUEST(f"`{HEADER}` must be 1 to 255 visible ASCII characters", param=HEADER)
        message = "\n".join((caller.key_id, route, key, body_sha256)).encode()
        digest, kid = self._keyring.sign(message).hex(), self._keyring.kid
        claim = Claim(caller.org_id, caller.key_id, route, key, uuid.uuid4().hex, digest, kid)
        try:
            earlier = await self._database.run(partial(replies.claim, holder=claim), row=claim.lane())
        except ApiError as error:
            if error.fault is STATE_UNAVAILABLE:
                # The answer may have been lost after the commit, and nobody will do the work of that claim.
                self._lost.append(claim)
            raise
        if earlier is None:
            attempt = Attempt(self, claim)
            self._running.add(attempt)
            return attempt
        return self._replay(earlier, key, message)

    async def renew(self) -> None:
        """Extends the leases of what runs here, and frees keys that a lost answer may have claimed."""
        while self._lost:
            await self._database.run(partial(replies.drop, holder=self._lost[0]), patient=True)
            self._lost.popleft()
        claims = [attempt.claim for attempt in self._running]
        for at in range(0, len(claims), RENEWED_AT_ONCE):
            await self._database.run(partial(replies.renew, running=claims[at : at + RENEWED_AT_ONCE]), patient=True)

    async def forget_old(self) -> None:
        """Deletes answers older than 24 hours, a bounded number in each transaction."""
        for _ in range(ROUNDS):
            if await self._database.run(replies.forget, patient=True) < replies.AT_ONCE:
                break

    async def _keep(self, attempt: Attempt, keep: partial[None]) -> None:
        await self._database.run(keep, row=attempt.claim.lane())
        self._running.discard(attempt)

    def _replay(self, row: Row[Any], key: str, message: bytes) -> StoredReply:
        if row.kid not in self._keyring.keys:
            raise IDEMPOTENCY_FINISHED(
                f"`{HEADER}` {key} was used before this server's secret changed; use a new key", param=HEADER
            )
        if not self._keyring.verify(message, row.kid, bytes.fromhex(row.body_sha256)):
            raise IDEMPOTENCY_MISMATCH(f"`{HEADER}` {key} was used with another body; use a new key", param=HEADER)
        if row.status is None:
            raise IDEMPOTENCY_IN_PROGRESS(f"the first request with `{HEADER}` {key} is still running", param=HEADER)
        if row.body is None:
            raise IDEMPOTENCY_FINISHED(
                f"the request with `{HEADER}` {key} has finished, but its answer was not stored; use a new key",
                param=HEADER,
            )
        return StoredReply(row.status, json.loads(row.headers), row.body)


class Attempt:
    """The request that does the work. End it with `finish` or `abandon`; if its process dies, its lease ends it."""

    def __init__(self, store: Idempotency, claim: Claim) -> None:
        self.claim = claim
        self._store = store

    async def finish(self, status: int, headers: Mapping[str, str], body: bytes | None) -> None:
        """Keeps the answer for repetitions.

        Without a body (None, or more than 256 KiB) only the fact is kept, for answers that must not be stored, for
        streams, and where the disk is nearly full. Repetitions are then refused. If the database refuses, the fact is
        kept as soon as it can be.
        """
        store = self._store
        keep = partial(replies.keep, holder=self.claim, status=status, headers=json.dumps(dict(headers)))
        if body and (len(body) > MAX_BODY_BYTES or store.free_bytes() < SPARE_BYTES + len(body)):
            body = None
        name = f"store an answer for its {HEADER}"
        if not await attempted(name, partial(store._keep, self, partial(keep, body=body))):
            # Its lease is renewed meanwhile: the work is done and billed, and must not be done again.
            store.spawn(retried(name, partial(store._keep, self, partial(keep, body=None))))

    async def abandon(self) -> None:
        """Frees the key: nothing was done, and the client may retry."""
        self._store._running.discard(self)
        await self._store._database.run(partial(replies.drop, holder=self.claim), row=self.claim.lane())
