"""Requests per minute, per key or network address, and concurrent streams, per key. What a key issues has a share.

Sliding window counters: in memory with one ingress replica, by the `limits` library in Redis with more. If Redis does
not answer, each replica allows its share of the limit: it fails open, but bounded.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from limits import RateLimitItem, RateLimitItemPerSecond
from limits.aio.storage.redis import RedisStorage
from limits.aio.strategies import SlidingWindowCounterRateLimiter
from limits.errors import StorageError
from redis.exceptions import RedisError

from concurrency.fairness import OwnerCounter
from contract.access import Caller, RateOwner
from contract.errors import RATE_LIMIT_EXCEEDED, ApiError
from contract.limits import KEYLESS_REQUESTS, RATE_WINDOW_S
from state.shared_streams import SharedStreams

log = logging.getLogger(f"parlance.{__name__}")

REDIS_TIMEOUT_S = 1.0
"""Longer than this process itself is ever held up: a machine that was short of processors for 0.3 s would otherwise
look like a dead Redis, and each replica would allow its share beside what was counted already."""
REDIS_PAUSE_S = 5.0
"""Pause after a failure, so that not every request waits for the timeout of Redis."""


@dataclass(frozen=True, slots=True)
class RateVerdict:
    """Standing of a key, or an address, after this request.

    Attributes:
        limit: requests per window.
        remaining: requests left now.
        reset_s: whole seconds until more requests are allowed; `Retry-After` of a refusal.
        window_s: length of the window.
        allowed: whether this request may proceed.
    """

    limit: int
    remaining: int
    reset_s: int
    allowed: bool
    window_s: int = RATE_WINDOW_S


class Rates:
    """The limits of one ingress replica.

    Args:
        redis_url: shared counters, or None to count in this process.
        replicas: number of ingress replicas.
        window_s: length of the window.

    Attributes:
        fallbacks: requests counted in this process because Redis did not answer.
        open_streams: streams that callers hold open in this process.
        connection: the client of Redis; None where this process counts alone.
    """

    def __init__(self, redis_url: str | None = None, replicas: int = 1, window_s: int = RATE_WINDOW_S) -> None:
        self.fallbacks = self.open_streams = 0
        self._replicas = replicas
        self._window_s = window_s
        self._local = LocalWindows(window_s)
        redis = _redis(redis_url) if redis_url else None
        self._shared = SlidingWindowCounterRateLimiter(redis) if redis else None
        self.connection = redis.bridge.get_connection() if redis else None
        self._paused_until_s = 0.0
        self._local_streams = OwnerCounter()
        self._shared_streams = SharedStreams(self.connection) if redis else None

    async def hit(self, caller: Caller) -> RateVerdict:
        """Counts one request of the caller's key, and of what that has issued. A refused one does not count.

        The verdict is that of the owner with the fewest requests left.
        """
        verdicts = list[RateVerdict]()
        for owner in caller.rate_owners:
            verdicts.append(await self._count(owner.name, owner.requests_per_minute))
            if not verdicts[-1].allowed:
                for allowing in caller.rate_owners[: len(verdicts) - 1]:
                    await self._count(allowing.name, allowing.requests_per_minute, -1)
                return verdicts[-1]
        return min(verdicts, key=lambda verdict: verdict.remaining)

    async def hit_address(self, address: str) -> RateVerdict:
        """Counts one request without a key, by where it came from. A refused one does not count."""
        return await self._count(f"from {address}", KEYLESS_REQUESTS)

    async def hit_wrong_key(self, address: str) -> RateVerdict:
        """The same for a key that opens nothing: a program with an old key takes nothing from its neighbours."""
        return await self._count(f"wrong keys from {address}", KEYLESS_REQUESTS)

    async def _count(self, who: str, limit: int, requests: int = 1) -> RateVerdict:
        """Counts in Redis; in this process where there is none, or it does not answer. -1 takes a request back."""
        if self._shared is None:
            return self._local.hit(who, limit, requests)
        if time.monotonic() >= self._paused_until_s:
            try:
                return await self._hit(self._shared, limit, who, requests)
            except StorageError as error:
                self._pause(error.storage_error)
        self.fallbacks += 1
        return self._local.hit(who, max(1, limit // self._replicas), requests)

    @asynccontextmanager
    async def stream(self, caller: Caller) -> AsyncIterator[None]:
        """Holds one of the caller's streams while the block runs. Raises RATE_LIMIT_EXCEEDED if all are taken."""
        async with AsyncExitStack() as places:
            for owner in caller.rate_owners:
                await self._open_stream(owner, caller, places)
            self.open_streams += 1
            try:
                yield
            finally:
                self.open_streams -= 1

    async def _open_stream(self, owner: RateOwner, caller: Caller, places: AsyncExitStack) -> None:
        """Takes a place in Redis, where it answers, and one in this process; `places` gives both back."""
        limit = owner.concurrent_streams
        share = max(1, limit // self._replicas)
        if self._shared_streams is not None and time.monotonic() >= self._paused_until_s:
            try:
                if (place := await self._shared_streams.take(owner.name, limit)) is None:
                    raise _too_many(owner, caller, limit)
                places.push_async_callback(self._shared_streams.give_back, owner.name, place)
                share = limit
            except RedisError as error:
                self._pause(error)
        if not self._local_streams.take(owner.name, limit=share):
            raise _too_many(owner, caller, share)
        places.callback(self._local_streams.give_back, owner.name)

    async def renew(self) -> None:
        """Renews the leases of open streams. Called by `State`."""
        if self._shared_streams is not None:
            await self._shared_streams.renew()

    def _pause(self, error: Exception) -> None:
        self._paused_until_s = time.monotonic() + REDIS_PAUSE_S
        log.error("Redis does not answer, so each replica allows its share of the limits: %s", type(error).__name__)

    async def close(self) -> None:
        """Disconnects from Redis."""
        if self.connection is not None:
            await self.connection.aclose()

    async def _hit(self, limiter: SlidingWindowCounterRateLimiter, limit: int, who: str, requests: int) -> RateVerdict:
        window = _window(limit, self._window_s)
        # Only `hit` decides: with a test before it, concurrent requests would all pass.
        allowed = await limiter.hit(window, who, cost=requests)
        stats = await limiter.get_window_stats(window, who)
        reset_s = whole_reset_s(stats.reset_time - time.time(), self._window_s)
        return RateVerdict(limit, stats.remaining, reset_s, allowed, self._window_s)


class LocalWindows:
    """Sliding windows in memory, as the library counts them in Redis.

    What the window before this one has counted weighs by the share of it that is less than `window_s` ago.
    """

    def __init__(self, window_s: int) -> None:
        self._window_s = window_s
        self._number = 0
        self._counts: dict[str, int] = {}
        self._earlier: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._counts) + len(self._earlier)

    def hit(self, who: str, limit: int, requests: int = 1) -> RateVerdict:
        """Counts requests of `who`, unless they are beyond `limit`; a negative number takes them back."""
        number, spent = divmod(time.time() / self._window_s, 1)
        if number != self._number:
            # Also after the clock was set back.
            self._earlier = self._counts if number == self._number + 1 else {}
            self._number, self._counts = int(number), {}
        earlier, count, left_s = self._earlier.get(who, 0), self._counts.get(who, 0), (1 - spent) * self._window_s
        in_sight = earlier * left_s / self._window_s
        if is_allowed := math.floor(in_sight + count) + requests <= limit:
            count = self._counts[who] = count + requests
        resets_s = [left_s % (self._window_s / earlier)] if earlier else []
        resets_s += [left_s % self._window_s] if count else []
        remaining = max(0, limit - math.floor(in_sight + count))
        reset_s = whole_reset_s(min(resets_s, default=0.0), self._window_s)
        return RateVerdict(limit, remaining, reset_s, is_allowed, self._window_s)


def whole_reset_s(reset_s: float, window_s: int) -> int:
    """Rounded up past the moment of the reset: a client that retries on time must not be refused again."""
    return min(max(math.floor(reset_s) + 1, 1), window_s)


def _too_many(owner: RateOwner, caller: Caller, limit: int) -> ApiError:
    streams = f"{limit} open streams, the limit of its plan `{caller.tariff.name}`"
    if owner.name != caller.key_id:
        streams = f"issued credentials with {limit} open streams, which is their limit"
    return RATE_LIMIT_EXCEEDED(f"this key has {streams}; close one first", retry_after_s=1)


def _redis(url: str) -> Any:  # the library does not type the client behind `bridge`
    return RedisStorage(
        f"async+{url}",
        wrap_exceptions=True,
        implementation="redispy",
        key_prefix="parlance",
        socket_timeout=REDIS_TIMEOUT_S,
        socket_connect_timeout=REDIS_TIMEOUT_S,
    )


@lru_cache(maxsize=256)
def _window(limit: int, window_s: int) -> RateLimitItem:
    return RateLimitItemPerSecond(limit, window_s, namespace="requests")
