"""From an `Authorization` header to a Caller. Spec 5.

The hot path is a checksum, one HMAC and a lookup in a cache of 5 seconds; only a miss queries the database. So a
revoked key is refused by every process within 5 seconds, and so end the streams that it began.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Row

from contract.access import PLANS, Account, Caller, Scope, SpendObject
from contract.errors import INVALID_API_KEY, STATE_UNAVAILABLE, ApiError
from contract.limits import KEY_CACHE_S
from state.accounts import api_keys, organisations
from state.accounts.cache import TtlCache
from state.accounts.keys import Key, read_bearer
from state.database.base import Database
from state.keyring import Keyring

log = logging.getLogger(f"parlance.{__name__}")

MAX_CALLERS = 10_000
MAX_REFUSALS = 1_000

PEPPER = "api-keys"
"""Purpose of the derived secret under which keys are stored."""


class Accounts:
    """API keys and what they may do.

    Args:
        database: where keys live.
        pepper: the keyring of purpose `api-keys`.
        monotonic, wall: clocks in seconds, for the cache and for the time of last use.
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
        # By the whole digest: a shortened cache key would let one key pass for another.
        self._callers: TtlCache[bytes, Caller] = TtlCache(MAX_CALLERS, KEY_CACHE_S)
        self._current: TtlCache[str, Caller] = TtlCache(MAX_CALLERS, KEY_CACHE_S)
        self._refused: TtlCache[bytes, bool] = TtlCache(MAX_REFUSALS, KEY_CACHE_S)

    async def authenticate(self, authorization: str | None) -> Caller:
        """The caller behind the header. Raises MISSING_API_KEY, INVALID_API_KEY, STATE_UNAVAILABLE."""
        key = read_bearer(authorization)
        digest = self._pepper.sign(key.text.encode())
        now_s = self._monotonic()
        caller = self._callers.get(digest, now_s)
        if caller is None:
            if self._refused.get(digest, now_s):
                raise INVALID_API_KEY()
            caller = await self._database.run(lambda connection: self._look_up(connection, key))
            # Counted from before the query, so that an entry never outlives its 5 s.
            if caller is None:
                self._refused.put(digest, True, now_s)
                raise INVALID_API_KEY()
            self._callers.put(digest, caller, now_s)
            self._current.put(caller.key_id, caller, now_s)
        return caller

    async def current(self, caller: Caller) -> Caller:
        """What holds for the key of `caller` by now, for requests that take longer than the cache.

        A database that does not answer ends nothing that has begun. Raises INVALID_API_KEY where the key was revoked.
        """
        now_s = self._monotonic()
        current = self._current.get(caller.key_id, now_s)
        if current is None:
            current = await self._renewed(caller)
            self._current.put(caller.key_id, current, now_s)
        return current

    async def _renewed(self, caller: Caller) -> Caller:
        try:
            row = await self._database.run(lambda connection: api_keys.find(connection, caller.key_id))
        except ApiError as error:
            if error.fault is STATE_UNAVAILABLE:
                return caller
            raise
        if row is None or row.revoked_at is not None:
            raise INVALID_API_KEY()
        return _caller(row)

    async def describe(self, caller: Caller) -> Account:
        """Organisation, plan, limits, user, key and spend of a caller, for `GET /me`; money in whole micro-EUR."""
        rows = await self._database.run(lambda connection: organisations.list_budgets(connection, caller.org_id))
        spend = {row.user: row for row in rows}
        return {
            "organisation": {
                "name": caller.org,
                "plan": caller.plan.name,
                "entitlements": sorted(caller.entitlements),
                "models": None if caller.models is None else sorted(caller.models),
                "decision_model": caller.decision_model,
            },
            "user": caller.user,
            "key_id": caller.key_id,
            "limits": {
                "requests_per_minute": caller.plan.requests_per_minute,
                "concurrent_streams": caller.plan.concurrent_streams,
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
        api_keys.mark_used(connection, row, key, self._pepper, int(self._wall()))
        return _caller(row)


def _caller(row: Row[Any]) -> Caller:
    plan = PLANS[row.org_plan]
    return Caller(
        org_id=row.org_id,
        org=row.org_name,
        key_id=row.public_id,
        plan=replace(
            plan,
            requests_per_minute=row.org_requests_per_minute or plan.requests_per_minute,
            concurrent_streams=row.org_concurrent_streams or plan.concurrent_streams,
        ),
        scopes=frozenset(Scope(name) for name in row.scopes),
        user_id=row.user_id,
        user=row.user,
        entitlements=row.org_entitlements,
        models=row.org_models,
        decision_model=row.org_decision_model,
        org_limited=row.org_limit_micro_eur is not None,
        user_limited=row.user_limit_micro_eur is not None,
    )


def _spend(row: Row[Any]) -> SpendObject:
    return {
        "limit_micro_eur": row.limit_micro_eur,
        "spent_micro_eur": row.spent_micro_eur,
        "held_micro_eur": row.held_micro_eur,
    }
