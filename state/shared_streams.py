"""Open streams of all ingress replicas, counted in Redis under leases."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from typing import Any

from redis.exceptions import RedisError

LEASE_S = 120
"""Renewed every 30 s by the state."""

OPEN = """
local now = tonumber(redis.call('TIME')[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[1]) then return 0 end
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[3])
redis.call('EXPIRE', KEYS[1], ARGV[2])
return 1
"""

RENEW = """
local now = tonumber(redis.call('TIME')[1])
for place = 2, #ARGV do redis.call('ZADD', KEYS[1], now + ARGV[1], ARGV[place]) end
redis.call('EXPIRE', KEYS[1], ARGV[1])
"""


class SharedStreams:
    """Open streams of all processes that share `redis`, a client of redis-py. Raises its RedisError.

    A stream is a member of a sorted set with the end of its lease as its score: what a dead replica held is free then.
    """

    def __init__(self, redis: Any) -> None:
        self._redis = redis
        self._open = redis.register_script(OPEN)
        self._renew = redis.register_script(RENEW)
        self._names: dict[str, set[str]] = {}

    async def take(self, key_id: str, limit: int) -> str | None:
        """The name of one more stream, which was counted; None where the limit is reached."""
        name = secrets.token_hex(8)
        if not await self._open(keys=[_set_of(key_id)], args=[limit, LEASE_S, name]):
            return None
        self._names.setdefault(key_id, set()).add(name)
        return name

    async def give_back(self, key_id: str, name: str) -> None:
        """The stream of that name has ended. Raises nothing."""
        names = self._names[key_id]
        names.discard(name)
        if not names:
            del self._names[key_id]
        # Should Redis not answer, the place is free when its lease ends.
        with suppress(RedisError):
            await asyncio.shield(self._redis.zrem(_set_of(key_id), name))

    async def renew(self) -> None:
        """Renews the leases of every stream that is open here."""
        for key_id, names in list(self._names.items()):
            renewed = set(names)
            await self._renew(keys=[_set_of(key_id)], args=[LEASE_S, *renewed])
            if ended := renewed - names:  # they may have been taken out before, and are there again
                await self._redis.zrem(_set_of(key_id), *ended)


def _set_of(key_id: str) -> str:
    return f"parlance:streams:{key_id}"
