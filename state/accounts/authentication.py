"""From an `Authorization` header to a Caller.

The hot path is one hash of the header and a lookup in a cache of 5 seconds; only a miss checks the key and queries the
database. So a revoked key is refused by every process within 5 seconds, and so end the streams that it began. When it
expires is known of every key in the cache, and is looked at each time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from typing import Any, Generic, TypeVar

from sqlalchemy import Connection, Row

from contract.access import TARIFFS, AccountDetails, Caller, Renewal, Scope, SpendObject
from contract.errors import EXPIRED_API_KEY, INVALID_API_KEY, STATE_UNAVAILABLE, ApiError
from contract.limits import KEY_CACHE_S
from state.accounts import api_keys, organisations
from state.billing.months import iso_s, month_at, zone_of
from state.database.base import Database
from state.keys import Key, Keyring, read_bearer

K = TypeVar("K")
V = TypeVar("V")


class TtlCache(Generic[K, V]):
    """Values that expire after `ttl_s` seconds. Of more than `max_entries`, the oldest are evicted."""

    def __init__(self, max_entries: int, ttl_s: float) -> None:
        self._max_entries = max_entries
        self._ttl_s = ttl_s
        self._entries: OrderedDict[K, tuple[float, V]] = OrderedDict()

    def get(self, key: K, now_s: float) -> V | None:
        """The value, None if it is missing or expired."""
        entry = self._entries.get(key)
        return entry[1] if entry is not None and now_s < entry[0] else None

    def put(self, key: K, value: V, now_s: float) -> None:
        """Stores `value`, which expires `ttl_s` after `now_s`."""
        self._entries[key] = (now_s + self._ttl_s, value)
        self._entries.move_to_end(key)
        while len(self._entries) > self._max_entries:
            self._entries.popitem(last=False)

    def __len__(self) -> int:
        return len(self._entries)


log = logging.getLogger(f"parlance.{__name__}")

MAX_CALLERS = 10_000
MAX_REFUSALS = 1_000

PEPPER = "api-keys"
"""Purpose of the derived secret under which keys are stored."""


class Accounts:
    """API keys and what they may do.

    Args:
        database: database of the keys.
        pepper: the keyring of purpose `api-keys`.
        monotonic, wall: clocks in seconds, for the cache, and for the times of last use and expiry.
    """

    def __init__(
        self,
        database: Database,
        pepper: Keyring,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._pepper = pepper
        self._monotonic = monotonic
        self._wall = wall
        # By a whole digest of the whole header: a shortened one would let one key pass for another, and the text of a
        # key is not kept.
        self._callers: TtlCache[bytes, Caller] = TtlCache(MAX_CALLERS, KEY_CACHE_S)
        self._current: TtlCache[str, Caller] = TtlCache(MAX_CALLERS, KEY_CACHE_S)
        self._refused: TtlCache[bytes, bool] = TtlCache(MAX_REFUSALS, KEY_CACHE_S)
        self._renewals: dict[str, asyncio.Task[Caller]] = {}

    async def authenticate(self, authorization: str | None) -> Caller:
        """The caller behind the header. Raises MISSING_API_KEY, INVALID_API_KEY, EXPIRED_API_KEY, STATE_UNAVAILABLE."""
        # A header may hold lone surrogates.
        digest = sha256((authorization or "").encode("utf-8", "surrogatepass")).digest()
        now_s = self._monotonic()
        caller = self._callers.get(digest, now_s)
        if caller is None:
            key = read_bearer(authorization)
            if self._refused.get(digest, now_s):
                raise INVALID_API_KEY()
            caller = await self._database.run(lambda connection: self._look_up(connection, key))
            # Counted from before the query, so that an entry never outlives its 5 s.
            if caller is None:
                self._refused.put(digest, True, now_s)
                raise INVALID_API_KEY()
            self._callers.put(digest, caller, now_s)
            self._current.put(caller.key_id, caller, now_s)
        return self._unexpired(caller)

    async def current(self, caller: Caller) -> Caller:
        """Returns the current record of the key of `caller`, for requests that take longer than the cache.

        A database that does not answer ends nothing that has begun. Raises INVALID_API_KEY where the key was revoked,
        EXPIRED_API_KEY.
        """
        current = self._current.get(caller.key_id, self._monotonic())
        if current is None:
            current = await asyncio.shield(self._renewals.get(caller.key_id) or self._start_renewal(caller))
        return current if current.expires_at is None else self._unexpired(current)

    async def holder(self, key_id: str) -> Caller:
        """The caller with the key of this public id. Raises INVALID_API_KEY, EXPIRED_API_KEY, STATE_UNAVAILABLE."""
        return self._unexpired(self._current.get(key_id, self._monotonic()) or await self._read(key_id))

    async def _read(self, key_id: str) -> Caller:
        """Reads the record of a key. Raises INVALID_API_KEY where it was revoked."""
        now_s = self._monotonic()
        row = await self._database.run(lambda connection: api_keys.find(connection, key_id))
        if row is None or row.revoked_at is not None:
            raise INVALID_API_KEY()
        caller = _caller(row)
        self._current.put(key_id, caller, now_s)
        return caller

    def _unexpired(self, caller: Caller) -> Caller:
        if caller.expires_at is not None and self._wall() >= caller.expires_at:
            raise EXPIRED_API_KEY(f"the API key expired at {iso_s(caller.expires_at)}; create another")
        return caller

    def _start_renewal(self, caller: Caller) -> asyncio.Task[Caller]:
        """One look-up at a time for each key: all streams of a key find the cache expired at the same moment."""
        renewal = asyncio.create_task(self._renew(caller))
        self._renewals[caller.key_id] = renewal
        renewal.add_done_callback(lambda task: self._end_renewal(caller.key_id, task))
        return renewal

    def _end_renewal(self, key_id: str, renewal: asyncio.Task[Caller]) -> None:
        del self._renewals[key_id]
        if not renewal.cancelled():
            renewal.exception()  # Retrieved here, because every stream that waited may have ended.

    async def _renew(self, caller: Caller) -> Caller:
        now_s = self._monotonic()
        try:
            return await self._read(caller.key_id)
        except ApiError as error:
            if error.fault is not STATE_UNAVAILABLE:
                raise
            self._current.put(caller.key_id, caller, now_s)
            return caller

    async def describe(self, caller: Caller) -> AccountDetails:
        """Organisation, plan, limits, user, key and spend of a caller, for `GET /me`; money in whole micro-EUR."""
        rows = await self._database.run(lambda connection: organisations.list_budgets(connection, caller.org_id))
        spend = {row.user: row for row in rows}
        return {
            "organisation": {
                "name": caller.org,
                "plan": caller.tariff.name,
                "entitlements": sorted(caller.entitlements),
                "models": None if caller.models is None else sorted(caller.models),
                "decision_model": caller.decision_model,
            },
            "user": caller.user,
            "key_id": caller.key_id,
            "key_expires_at": None if caller.expires_at is None else iso_s(caller.expires_at),
            "limits": {
                "requests_per_minute": caller.tariff.requests_per_minute,
                "concurrent_streams": caller.tariff.concurrent_streams,
            },
            "spend": {
                "organisation": _spend(spend[None]),
                "user": None if caller.user is None else _spend(spend[caller.user]),
            },
        }

    def _look_up(self, connection: Connection, key: Key) -> Caller | None:
        row = api_keys.find(connection, key.public_id)
        if row is None:
            return None
        if row.kid not in self._pepper.keys:
            log.error("key %s was made with the secret %s, which this process does not have", key.public_id, row.kid)
        if not self._pepper.verify(key.text.encode(), row.kid, row.digest) or row.revoked_at is not None:
            return None
        if row.expires_at is None or self._wall() < row.expires_at:
            api_keys.mark_used(connection, row, key, self._pepper, int(self._wall()))
        return _caller(row)


def _caller(row: Row[Any]) -> Caller:
    tariff = TARIFFS[row.org_plan]
    return Caller(
        org_id=row.org_id,
        org=row.org_name,
        key_id=row.public_id,
        tariff=replace(
            tariff,
            requests_per_minute=row.org_requests_per_minute or tariff.requests_per_minute,
            concurrent_streams=row.org_concurrent_streams or tariff.concurrent_streams,
        ),
        scopes=frozenset(Scope(name) for name in row.scopes),
        user_id=row.user_id,
        user=row.user,
        entitlements=row.org_entitlements,
        models=row.org_models,
        decision_model=row.org_decision_model,
        expires_at=row.expires_at,
        org_limited=row.org_limit_micro_eur is not None,
        user_limited=row.user_limit_micro_eur is not None,
    )


def _spend(row: Row[Any]) -> SpendObject:
    return {
        "limit_micro_eur": row.limit_micro_eur,
        "spent_micro_eur": row.spent_micro_eur,
        "held_micro_eur": row.held_micro_eur,
        "in_advance_micro_eur": row.in_advance_micro_eur,
        "left_micro_eur": organisations.left(row),
        "renewal": _renewal(row),
    }


def _renewal(row: Row[Any]) -> Renewal | None:
    if row.time_zone is None:
        return None
    since_s, until_s = month_at(row.now_s, zone_of(row.time_zone))
    return {"every": "month", "time_zone": row.time_zone, "since": iso_s(since_s), "until": iso_s(until_s)}
