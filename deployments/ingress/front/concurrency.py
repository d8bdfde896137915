"""Bounds of what requests hold at one time, before any work is done for them. Each is of one ingress process.

    requests     of all clients                     503 OVERLOADED
    requests     of a key, of an organisation       429 TOO_MUCH_AT_ONCE
    uploads      of an organisation                 429 TOO_MUCH_AT_ONCE
    uploads      of all clients                     503 OVERLOADED
    body bytes   of a key, of an organisation       429 TOO_MUCH_AT_ONCE
    body bytes   of all clients                     503 OVERLOADED

Without a key, a network counts like a key, and all without one like an organisation. What is held is given back
when the request is over: a body stays in memory until then, as JSON or as a job. A long reply counts among the bodies
until it is sent; where its length is known beforehand, room is taken before an engine is asked. Refusals are counted,
and the counts go to the log.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from dataclasses import dataclass, field
from typing import ClassVar

from autoscaling.engine import owner_name
from concurrency.fairness import OwnerCounter
from concurrency.semaphore import FairSemaphore
from contract.access import Caller, RateOwner
from contract.errors import OVERLOADED, TOO_MUCH_AT_ONCE, ApiError
from contract.limits import (
    BODIES_OF_KEY_BYTES,
    BODIES_OF_ORGANISATION_BYTES,
    BODIES_OF_PROCESS_BYTES,
    KEYLESS_AT_ONCE,
    LONG_BODY_BYTES,
    MIB,
    REQUESTS_OF_PROCESS,
    REQUESTS_PER_STREAM,
    UPLOADS_OF_ORGANISATION,
)

log = logging.getLogger(f"parlance.{__name__}")

REPORT_S = 60.0
"""Seconds between logged refusals at least."""

RETRY_AFTER_RANGE_S = (1, 3)
"""Bounds of `Retry-After`: those who were refused together do not come back together."""


@dataclass(frozen=True, slots=True)
class AnonymousClient:
    """A client without a key.

    Attributes:
        network: address of its network.
        org_id: all clients without a key are like one organisation; ids of real ones begin at 1.
        derived: credentials that it has issued, as of a key: none.
    """

    network: str
    org_id: ClassVar[int] = 0
    derived: ClassVar[tuple[RateOwner, ...]] = ()

    @property
    def key_id(self) -> str:
        """Clients of one network are like one key."""
        return f"from {self.network}"


Holder = Caller | AnonymousClient
"""Holder of something."""


class UsageCounter:
    """Amounts of one thing that are held: in all, by organisation, by key and by credentials that keys have issued."""

    def __init__(self) -> None:
        self.of_organisation, self.of_key = OwnerCounter(), OwnerCounter()

    @property
    def total(self) -> int:
        """Amount that all hold together."""
        return self.of_organisation.total

    def take(self, holder: Holder, amount: int) -> None:
        """Adds; a negative `amount` gives back."""
        self.of_organisation.take(holder.org_id, amount)
        self.of_key.take(holder.key_id, amount)
        for owner in holder.derived:
            self.of_key.take(owner.name, amount)

    @contextmanager
    def hold(self, holder: Holder, amount: int = 1) -> Iterator[None]:
        """Adds until the block ends."""
        self.take(holder, amount)
        try:
            yield
        finally:
            self.take(holder, -amount)

    def of(self, holder: Holder) -> tuple[int, int]:
        """Amounts that its key holds, and its organisation."""
        return self.of_key[holder.key_id], self.of_organisation[holder.org_id]


@dataclass
class ConcurrencyLimits:
    """Holdings of one process.

    Attributes:
        most_requests: under way at one time, in all.
        requests: number of requests under way.
        calls: requests among them that have a key, or need none.
        uploads: recordings on their way under tickets, by organisation.
        body_bytes: of bodies that have come and are not done with, and of long replies that are not sent yet.
        reading: turns of organisations to have a long body read in the event loop.
        refused: number of requests that each row of the table of errors has refused.
    """

    most_requests: int = REQUESTS_OF_PROCESS
    requests: int = 0
    calls: UsageCounter = field(default_factory=UsageCounter)
    uploads: OwnerCounter = field(default_factory=OwnerCounter)
    body_bytes: UsageCounter = field(default_factory=UsageCounter)
    reading: FairSemaphore = field(default_factory=lambda: FairSemaphore(1))
    refused: Counter[str] = field(default_factory=Counter)
    _reported: Counter[str] = field(default_factory=Counter)
    _reported_at_s: float = 0.0
    _read_until_s: float = 0.0

    @contextmanager
    def request(self, is_vital: bool) -> Iterator[None]:
        """One request of anybody. Raises OVERLOADED, unless the process would be thought dead for it."""
        if self.requests >= self.most_requests and not is_vital:
            raise OVERLOADED(retry_after_s=_retry_after_s())
        self.requests += 1
        try:
            yield
        finally:
            self.requests -= 1

    def call(self, holder: Holder) -> AbstractContextManager[None]:
        """One request that was admitted. Raises TOO_MUCH_AT_ONCE."""
        of_key, of_organisation = self.calls.of(holder)
        most = KEYLESS_AT_ONCE
        if isinstance(holder, Caller):
            most = holder.tariff.concurrent_streams * REQUESTS_PER_STREAM
        if of_key >= most:
            raise _too_much(f"{_names(holder)[0]} has {most} requests running, which is its limit")
        if of_organisation >= (most := self.most_requests // 2):
            raise _too_much(f"{_names(holder)[1]} has {most} requests running, which is its limit")
        return self.calls.hold(holder)

    @contextmanager
    def upload(self, organisation: int) -> Iterator[None]:
        """One recording that comes under a ticket: for up to an hour, and no key is asked for. Raises as above."""
        if self.uploads[organisation] >= (most := UPLOADS_OF_ORGANISATION):
            raise _too_much(f"your organisation has {most} uploads running, which is its limit")
        if self.uploads.total >= self.most_requests // 4:
            raise OVERLOADED(retry_after_s=_retry_after_s())
        self.uploads.take(organisation)
        try:
            yield
        finally:
            self.uploads.give_back(organisation)

    @contextmanager
    def body(self, holder: Holder) -> Iterator[Callable[[int], None]]:
        """Body of a request, or messages of a websocket. Yields what takes bytes, and raises as in the table above."""
        taken_bytes = 0

        def take(count: int) -> None:
            nonlocal taken_bytes
            if count > 0:
                self._refuse_bytes(holder, count)
            self.body_bytes.take(holder, count)
            taken_bytes += count

        try:
            yield take
        finally:
            self.body_bytes.take(holder, -taken_bytes)

    def reading_turn(self, holder: Holder, length: int) -> AbstractAsyncContextManager[None]:
        """Around the reading of a body of this length, which takes milliseconds for a long one.

        Many that came together would be read one right after the other, and all others would wait for all of them.
        So others have as long between two as the last one took, and organisations take turns.
        """
        return nullcontext() if length <= LONG_BODY_BYTES else self._long_reading_turn(holder)

    @asynccontextmanager
    async def _long_reading_turn(self, holder: Holder) -> AsyncIterator[None]:
        async with self.reading.of(owner_name(holder.org_id)):
            await asyncio.sleep(max(0.0, self._read_until_s - time.monotonic()))
            began_s = time.monotonic()
            try:
                yield
            finally:
                self._read_until_s = 2 * time.monotonic() - began_s

    def reply(self, holder: Holder, count: int) -> AbstractContextManager[None]:
        """A reply that is there, until it is sent. It may pass every bound, being paid; what comes next is refused."""
        return self.body_bytes.hold(holder, count)

    def count(self, error: ApiError) -> None:
        """Counts a refusal of a bound, of this module or another one, and says now and then how many there were."""
        if error.fault.status not in (408, 429, 503):
            return
        self.refused[error.fault.name] += 1
        now_s = time.monotonic()
        if now_s - self._reported_at_s < REPORT_S:
            return
        news = ", ".join(f"{name} {count}" for name, count in sorted((self.refused - self._reported).items()))
        log.warning("requests refused since the last report: %s (%d requests are running)", news, self.requests)
        self._reported, self._reported_at_s = Counter(self.refused), now_s

    def _refuse_bytes(self, holder: Holder, count: int) -> None:
        if self.body_bytes.total + count > BODIES_OF_PROCESS_BYTES:
            raise OVERLOADED(retry_after_s=_retry_after_s())
        of_key, of_organisation = self.body_bytes.of(holder)
        most = BODIES_OF_KEY_BYTES // 2
        if any(self.body_bytes.of_key[owner.name] + count > most for owner in holder.derived):
            raise _too_many_bytes("the credentials that this key has issued", most)
        if of_key + count > (most := BODIES_OF_KEY_BYTES):
            raise _too_many_bytes(_names(holder)[0], most)
        if of_organisation + count > (most := BODIES_OF_ORGANISATION_BYTES):
            raise _too_many_bytes(_names(holder)[1], most)


def _names(holder: Holder) -> tuple[str, str]:
    return (
        ("this address", "the group of all clients without a key")
        if isinstance(holder, AnonymousClient)
        else ("this key", "your organisation")
    )


def _too_much(message: str) -> ApiError:
    return TOO_MUCH_AT_ONCE(message, retry_after_s=_retry_after_s())


def _too_many_bytes(holder: str, most_bytes: int) -> ApiError:
    return _too_much(f"the bodies and replies of requests of {holder} take more than {most_bytes // MIB} MiB together")


def _retry_after_s() -> int:
    return random.randint(*RETRY_AFTER_RANGE_S)
