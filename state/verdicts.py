"""Verdicts on speech, for the minutes in which they can be fetched: in Redis, in this process without it.

A verdict belongs to an organisation and a user. It is a help, and never a reason to fail: what Redis does not take is
as if the speech had not been verified.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from redis.exceptions import RedisError

from contract.access import Caller
from contract.errors import STATE_UNAVAILABLE
from contract.speech.verdict import VERDICT_KEPT_S, VERDICTS_KEPT

log = logging.getLogger(f"parlance.{__name__}")

PREFIX = "parlance:verdicts:2"

KEEP = """
local is_new = redis.call('EXISTS', KEYS[2]) == 0
if is_new or ARGV[2] ~= '' then redis.call('SET', KEYS[2], ARGV[1] .. ' ' .. ARGV[2], 'EX', ARGV[3]) end
if is_new then
  redis.call('LPUSH', KEYS[1], KEYS[2])
  redis.call('EXPIRE', KEYS[1], ARGV[3])
  for _, old in ipairs(redis.call('LRANGE', KEYS[1], ARGV[4], -1)) do redis.call('DEL', old) end
  redis.call('LTRIM', KEYS[1], 0, ARGV[4] - 1)
end
"""
"""Of two commands for one request each may come first, and the verdict stays."""


class Verdicts:
    """Texts by organisation and request, for VERDICT_KEPT_S. `redis` is a client of redis-py that processes share.

    Of more than VERDICTS_KEPT the oldest are gone: of an organisation in Redis; in a process without it those of the
    organisation that has most.
    """

    def __init__(self, redis: Any | None = None) -> None:
        self._redis = redis
        self._keep = redis.register_script(KEEP) if redis is not None else None
        self._local: dict[int, dict[str, bytes]] = {}
        """By organisation and request, the oldest first: the text as in Redis."""

    async def keep(self, caller: Caller, request_id: str, text: bytes) -> None:
        """Stores the verdict of a request, or that there will be one: an empty text."""
        if self._keep is None:
            self._keep_here(caller, request_id, b"%d %b" % (caller.user_id or 0, text))
            return
        names = _names(caller.org_id, request_id)
        try:
            await self._keep(keys=names, args=[caller.user_id or 0, text, VERDICT_KEPT_S, VERDICTS_KEPT])
        except RedisError as error:
            log.error("a verdict could not be kept: %s", type(error).__name__)

    async def find(self, caller: Caller, request_id: str) -> bytes | None:
        """The text that is stored; None where nothing is, or it is not the caller's. Raises STATE_UNAVAILABLE.

        A key without a user may see what belongs to any user of its organisation.
        """
        if self._redis is None:
            stored = self._local.get(caller.org_id, {}).get(request_id)
        else:
            try:
                stored = await self._redis.get(_names(caller.org_id, request_id)[1])
            except RedisError:
                raise STATE_UNAVAILABLE() from None
        user, _, text = (stored or b"").partition(b" ")
        return text if user and caller.user_id in {None, int(user)} else None

    def _keep_here(self, caller: Caller, request_id: str, text: bytes) -> None:
        line = self._local.setdefault(caller.org_id, {})
        line[request_id] = text
        loop, written = asyncio.get_running_loop(), hash(text)  # a timer that held the text would outlive an eviction
        loop.call_later(VERDICT_KEPT_S, lambda: hash(line.get(request_id)) == written and line.pop(request_id, None))
        if sum(map(len, self._local.values())) > VERDICTS_KEPT:
            longest = max(self._local.values(), key=len)
            del longest[next(iter(longest))]


def _names(org_id: int, request_id: str) -> list[str]:
    return [f"{PREFIX}:{org_id}", f"{PREFIX}:{org_id}:{request_id}"]
