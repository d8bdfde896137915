"""What requests may hold at one time, before any work is done for them. Every bound is of one ingress process.

    requests     of everybody        503 OVERLOADED
    requests     of a key, of an organisation       429 TOO_MUCH_AT_ONCE
    body bytes   of a key, of an organisation       429 TOO_MUCH_AT_ONCE
    body bytes   of everybody        503 OVERLOADED

What is held is given back when the request is over: a body stays in memory until then, as JSON or as a job. Refusals
are counted, and the counts go to the log.
"""

from __future__ import annotations

import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from contract.access import Caller
from contract.errors import OVERLOADED, TOO_MUCH_AT_ONCE, ApiError
from contract.limits import (
    BODIES_OF_KEY_BYTES,
    BODIES_OF_ORGANISATION_BYTES,
    BODIES_OF_PROCESS_BYTES,
    MIB,
    REQUESTS_OF_PROCESS,
    REQUESTS_PER_STREAM,
)

log = logging.getLogger(f"parlance.{__name__}")

REPORT_S = 60.0
"""Refusals are logged at most so often."""

AGAIN_S = (1, 3)
"""Bounds of `Retry-After`: those who were refused together do not come back together."""


class Tally:
    """How much of one thing is held: in all, by organisation, by key."""

    def __init__(self) -> None:
        self.total = 0
        self.of_organisation: Counter[int] = Counter()
        self.of_key: Counter[str] = Counter()

    def take(self, caller: Caller, amount: int) -> None:
        """Adds; a negative `amount` gives back."""
        self.total += amount
        self.of_organisation[caller.org_id] += amount
        self.of_key[caller.key_id] += amount
        if not self.of_organisation[caller.org_id]:
            del self.of_organisation[caller.org_id]
        if not self.of_key[caller.key_id]:
            del self.of_key[caller.key_id]


@dataclass
class Budgets:
    """What is held in one process.

    Attributes:
        most_requests: under way at one time, of everybody.
        requests: those under way.
        calls: those among them that have a key.
        body_bytes: of bodies that have come and are not done with.
        refused: how many requests each row of the table of errors has refused.
    """

    most_requests: int = REQUESTS_OF_PROCESS
    requests: int = 0
    calls: Tally = field(default_factory=Tally)
    body_bytes: Tally = field(default_factory=Tally)
    refused: Counter[str] = field(default_factory=Counter)
    _reported: Counter[str] = field(default_factory=Counter)
    _reported_at_s: float = 0.0

    @contextmanager
    def request(self, is_vital: bool) -> Iterator[None]:
        """One request of anybody. Raises OVERLOADED, unless the process would be thought dead for it."""
        if self.requests >= self.most_requests and not is_vital:
            raise OVERLOADED(retry_after_s=_again_s())
        self.requests += 1
        try:
            yield
        finally:
            self.requests -= 1

    @contextmanager
    def call(self, caller: Caller) -> Iterator[None]:
        """One request with a key. Raises TOO_MUCH_AT_ONCE."""
        of_key, of_organisation = caller.plan.concurrent_streams * REQUESTS_PER_STREAM, self.most_requests // 2
        if self.calls.of_key[caller.key_id] >= of_key:
            raise TOO_MUCH_AT_ONCE(
                f"this key has {of_key} requests under way, as many as its plan `{caller.plan.name}` allows",
                retry_after_s=_again_s(),
            )
        if self.calls.of_organisation[caller.org_id] >= of_organisation:
            raise TOO_MUCH_AT_ONCE(
                f"your organisation has {of_organisation} requests under way, as many as it may",
                retry_after_s=_again_s(),
            )
        self.calls.take(caller, 1)
        try:
            yield
        finally:
            self.calls.take(caller, -1)

    @contextmanager
    def body(self, caller: Caller) -> Iterator[Callable[[int], None]]:
        """The body of a request. Gives a function that takes so many bytes more; it raises as in the table above."""
        taken_bytes = 0

        def take(count: int) -> None:
            nonlocal taken_bytes
            self._refuse_bytes(caller, count)
            self.body_bytes.take(caller, count)
            taken_bytes += count

        try:
            yield take
        finally:
            self.body_bytes.take(caller, -taken_bytes)

    def count(self, error: ApiError) -> None:
        """Counts a refusal of a bound, of this module or another one, and says now and then how many there were."""
        if error.fault.status not in (408, 429, 503):
            return
        self.refused[error.fault.name] += 1
        now_s = time.monotonic()
        if now_s - self._reported_at_s < REPORT_S:
            return
        news = ", ".join(f"{name} {count}" for name, count in sorted((self.refused - self._reported).items()))
        log.warning("refused since the last report: %s (%d requests are under way)", news, self.requests)
        self._reported, self._reported_at_s = Counter(self.refused), now_s

    def _refuse_bytes(self, caller: Caller, count: int) -> None:
        held = self.body_bytes
        if held.total + count > BODIES_OF_PROCESS_BYTES:
            raise OVERLOADED(retry_after_s=_again_s())
        for held_bytes, most_bytes, whose in (
            (held.of_key[caller.key_id], BODIES_OF_KEY_BYTES, "of this key"),
            (held.of_organisation[caller.org_id], BODIES_OF_ORGANISATION_BYTES, "of your organisation"),
        ):
            if held_bytes + count > most_bytes:
                raise TOO_MUCH_AT_ONCE(
                    f"the bodies of the requests {whose} that are under way have more than {most_bytes // MIB} MiB",
                    retry_after_s=_again_s(),
                )


def _again_s() -> int:
    return random.randint(*AGAIN_S)
