"""What our ears made of speech, for the minutes in which it can be fetched: in Redis, in this process without it.

It is a help, and never a reason to fail: what Redis does not take is as if nobody had listened.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from redis.exceptions import RedisError

from contract.errors import STATE_UNAVAILABLE
from contract.speech.verdict import VERDICT_KEPT_S, VERDICTS_KEPT
from state.accounts.authentication import TtlCache

log = logging.getLogger(f"parlance.{__name__}")

PREFIX = "parlance:verdicts:1"


class Verdicts:
    """Texts by organisation and request, for VERDICT_KEPT_S. `redis` is a client of redis-py that processes share."""

    def __init__(self, redis: Any | None = None) -> None:
        self._redis = redis
        self._local: TtlCache[str, bytes] = TtlCache(VERDICTS_KEPT, VERDICT_KEPT_S)

    async def keep(self, org_id: int, request_id: str, text: bytes) -> None:
        """Stores the verdict of a request, or that there will be one: an empty text."""
        name = _name(org_id, request_id)
        if self._redis is None:
            self._local.put(name, text, time.monotonic())
            return
        try:
            # Each of two commands may come first, and the verdict stays.
            await self._redis.set(name, text, ex=VERDICT_KEPT_S, nx=not text)
        except RedisError as error:
            log.error("a verdict could not be kept: %s", type(error).__name__)

    async def find(self, org_id: int, request_id: str) -> bytes | None:
        """What is stored; None where nothing is, or it is another organisation's. Raises STATE_UNAVAILABLE."""
        name = _name(org_id, request_id)
        if self._redis is None:
            return self._local.get(name, time.monotonic())
        try:
            text: bytes | None = await self._redis.get(name)
        except RedisError:
            raise STATE_UNAVAILABLE() from None
        return text


def _name(org_id: int, request_id: str) -> str:
    return f"{PREFIX}:{org_id}:{request_id}"
