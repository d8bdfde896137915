"""Console data that ingress replicas share in Redis: each one's view of the graph, and the last requests.

What each replica sees is a text under its name, with a lease: what a dead one saw is gone when that ends. The last
requests of an organisation are a list of ids, the newest first, and a hash of texts by id, which lose their oldest
together. Names hold a number that changes with the form of the texts: replicas of two versions do not read each other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, ClassVar

from contract.limits import CONSOLE_RECORDS

LEASE_S = 5
"""Renewed with every exchange, once a second."""

KEPT_S = 86_400
"""Seconds after its last request for which those of an organisation are kept."""

PAST_S = 3_600
"""Seconds for which it is known in which states engines were."""

PREFIX = "parlance:console:1"
VIEWS, LEASES, PAST = f"{PREFIX}:views", f"{PREFIX}:leases", f"{PREFIX}:past"

EXCHANGE = """
local now = tonumber(redis.call('TIME')[1])
redis.call('HSET', KEYS[1], ARGV[2], ARGV[3])
redis.call('ZADD', KEYS[2], now + ARGV[1], ARGV[2])
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', '(' .. now)) do
  redis.call('HDEL', KEYS[1], name)
  redis.call('ZREM', KEYS[2], name)
end
redis.call('EXPIRE', KEYS[1], ARGV[1])
redis.call('EXPIRE', KEYS[2], ARGV[1])
redis.call('SET', KEYS[3], ARGV[4], 'EX', ARGV[5])
return redis.call('HGETALL', KEYS[1])
"""

REMEMBER = """
for place = 3, #ARGV, 2 do
  if redis.call('HSET', KEYS[2], ARGV[place], ARGV[place + 1]) == 1 then redis.call('LPUSH', KEYS[1], ARGV[place]) end
end
for _, old in ipairs(redis.call('LRANGE', KEYS[1], ARGV[1], -1)) do redis.call('HDEL', KEYS[2], old) end
redis.call('LTRIM', KEYS[1], 0, ARGV[1] - 1)
redis.call('EXPIRE', KEYS[1], ARGV[2])
redis.call('EXPIRE', KEYS[2], ARGV[2])
"""
"""A request that is added again, because its first command was cancelled or not answered, stays the same one."""

READ = """
local start = 0
if ARGV[1] ~= '' then
  local place = redis.call('LPOS', KEYS[1], ARGV[1])
  if not place then return {} end
  start = place + 1
end
local ids = redis.call('LRANGE', KEYS[1], start, start + ARGV[2] - 1)
if #ids == 0 then return {} end
return {ids[#ids], redis.call('HMGET', KEYS[2], unpack(ids))}
"""
"""A batch of texts that follow an id, and the last id of the batch: requests that come meanwhile move no other."""


class SharedConsole:
    """The console of all processes that share `redis`, a client of redis-py. Raises its RedisError.

    Args:
        most: requests of an organisation that are kept.
    """

    BATCH: ClassVar[int] = 500
    """Requests that are handed on, and read, at a time."""

    def __init__(self, redis: Any, most: int = CONSOLE_RECORDS) -> None:
        self._redis, self._most = redis, most
        self._exchange = redis.register_script(EXCHANGE)
        self._remember = redis.register_script(REMEMBER)
        self._read = redis.register_script(READ)

    async def exchange(self, name: str, view: str, past: str) -> list[bytes]:
        """Stores what the process of that name sees, and saw; returns what all others see that live."""
        pairs = await self._exchange(keys=[VIEWS, LEASES, PAST], args=[LEASE_S, name, view, past, PAST_S])
        return [text for other, text in zip(pairs[::2], pairs[1::2], strict=True) if _text(other) != name]

    async def past(self) -> bytes | None:
        """View of a process that was here before, or has begun before."""
        text: bytes | None = await self._redis.get(PAST)
        return text

    async def leave(self, name: str) -> None:
        """Removes what the process of that name sees."""
        await self._redis.hdel(VIEWS, name)
        await self._redis.zrem(LEASES, name)

    async def remember(self, rows: Mapping[int, list[tuple[str, str]]]) -> None:
        """Adds requests, id and text, of organisations; the last one ended last."""
        for org_id, requests in rows.items():
            texts = [text for request in requests for text in request]
            await self._remember(keys=_names(org_id), args=[self._most, KEPT_S, *texts])

    async def newest_first(self, org_id: int, before: str | None) -> AsyncIterator[tuple[str, list[bytes]]]:
        """The texts of an organisation's requests that ended before one, BATCH at a time, and the last id of each."""
        last_id = before or ""
        while batch := await self._read(keys=_names(org_id), args=[last_id, self.BATCH]):
            last_id = _text(batch[0])
            yield last_id, [text for text in batch[1] if text is not None]

    async def find(self, org_id: int, request_id: str) -> bytes | None:
        """The text of one request of an organisation."""
        text: bytes | None = await self._redis.hget(_names(org_id)[1], request_id)
        return text


def _names(org_id: int) -> list[str]:
    return [f"{PREFIX}:requests:{org_id}", f"{PREFIX}:records:{org_id}"]


def _text(name: bytes | str) -> str:
    return name.decode() if isinstance(name, bytes) else name
