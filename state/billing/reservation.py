"""What one billed request holds and has used: the handle that flows work with. The work is done by the ledger."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from contract.access import Caller
from contract.errors import ORG_SPEND_LIMIT, STATE_UNAVAILABLE, USER_SPEND_LIMIT, ApiError, Fault

T = TypeVar("T")

MARK_S = 1.0
"""Time between marks, and the age from which a request gets any."""

SPEND_LIMITS = {"organisation": ORG_SPEND_LIMIT, "user": USER_SPEND_LIMIT}


class OverLimit(Exception):
    """A spend limit has no room. `whose` is `organisation` or `user`."""

    def __init__(self, whose: str) -> None:
        super().__init__(whose)
        self.whose = whose


@dataclass(frozen=True, slots=True)
class Entry:
    """What is billed and to whom. `id` is random and unique; `request_id` may not be."""

    id: str
    org_id: int
    user_id: int | None
    key_id: str
    request_id: str
    line: str
    model: str


@dataclass(frozen=True, slots=True)
class Usage:
    """What a request has cost, and what it had for that, in `unit`.

    Attributes:
        quantities: what `quantity` adds up, by the units that prices are for; None where nobody says.
    """

    cost_micro_eur: int
    quantity: int
    unit: str
    quantities: Mapping[str, int] | None = None


NO_USAGE = Usage(0, 0, "")


@dataclass(frozen=True, slots=True)
class Bill:
    """What is to be a usage line. `made_s` is the monotonic time of its making: it may be recorded much later."""

    entry: Entry
    used: Usage
    made_s: float = field(default_factory=time.monotonic)


class Books(Protocol):
    """What a reservation asks of the ledger that opened it."""

    async def top_up(self, hold: Reservation, amount: int) -> bool: ...
    async def settle(self, bill: Bill) -> int: ...
    async def void(self, entry: Entry) -> None: ...
    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]: ...


class Reservation:
    """Money held for one billed request. The first of `settle` and `void` wins; later calls change nothing.

    Attributes:
        held_micro_eur: what is held; 0 for callers without a limit.
        used: what `note` last said.
        marked: what of that the database has; None before the first time.
        is_stored: whether the database may have a row of it.
    """

    def __init__(self, ledger: Books, entry: Entry, caller: Caller) -> None:
        self.entry = entry
        self.held_micro_eur = 0
        self.used = NO_USAGE
        self.marked: Usage | None = None
        self.is_stored = False
        self._ledger = ledger
        self._caller = caller
        self._opened_s = time.monotonic()
        self._end: asyncio.Task[int] | None = None

    @property
    def has_ended(self) -> bool:
        """Whether it is settled or void, or on the way there."""
        return self._end is not None

    def note(self, cost_micro_eur: int, quantity: int, unit: str, quantities: Mapping[str, int] | None = None) -> None:
        """What the request has used so far: what is billed if the process ends before the request does."""
        self.used = Usage(cost_micro_eur, quantity, unit, quantities)

    async def limit(self, caller: Caller, micro_eur: int) -> None:
        """The limits of `caller` hold from now on: `micro_eur` are held if there were none before.

        Raises what `reserve` raises; settle what was produced so far.
        """
        self._caller = caller
        if not self.held_micro_eur:
            await self.top_up(max(1, micro_eur))

    def is_due(self) -> bool:
        """Whether it has used more than is recorded, and is old enough to be worth it."""
        is_old = time.monotonic() - self._opened_s >= MARK_S
        return is_old and not self.has_ended and self.used not in (NO_USAGE, self.marked)

    async def top_up(self, micro_eur: int) -> None:
        """Holds more before a stream goes on.

        Raises what `reserve` raises; settle what was produced so far.
        """
        if not self._is_limited or micro_eur <= 0:
            return
        try:
            is_held = await self._ledger.top_up(self, micro_eur)
        except OverLimit as refused:
            raise self.over_limit(refused) from None
        if not is_held:
            raise STATE_UNAVAILABLE()
        self.held_micro_eur += micro_eur

    @property
    def _is_limited(self) -> bool:
        return self._caller.org_limited or self._caller.user_limited

    async def settle(
        self, cost_micro_eur: int, quantity: int, unit: str, quantities: Mapping[str, int] | None = None
    ) -> int:
        """Bills the request once, even if the caller is cancelled. Returns the micro-EUR charged.

        `quantities` says by unit what `quantity` adds up.

        That is less than the cost only if the cost exceeds what was held and the limits have no room for the rest.
        """
        if self._end is None:
            bill = Bill(self.entry, Usage(cost_micro_eur, quantity, unit, quantities))
            self._end = self._ledger.spawn(self._ledger.settle(bill))
        return await asyncio.shield(self._end)

    async def settle_noted(self) -> None:
        """Bills what was noted; voids where that is nothing."""
        if self.used.quantity:
            used = self.used
            await self.settle(used.cost_micro_eur, used.quantity, used.unit, used.quantities)
        else:
            await self.void()

    async def void(self) -> None:
        """Releases what is held without billing, unless the request was settled."""
        if self._end is None:
            self._end = self._ledger.spawn(self._void())
        await asyncio.shield(self._end)

    async def _void(self) -> int:
        if self.is_stored:
            await self._ledger.void(self.entry)
        return 0

    def over_limit(self, refused: OverLimit) -> ApiError:
        """The 402 for this refusal."""
        return over_limit(refused, self._caller, SPEND_LIMITS[refused.whose])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.void()


def over_limit(refused: OverLimit, caller: Caller, fault: Fault) -> ApiError:
    """The 402 for a refusal."""
    name = caller.org if refused.whose == "organisation" else caller.user
    return fault(f"the spend limit of {refused.whose} `{name}` has no room for this request")
