"""One billed request: what it holds, has used and owes, in micro-EUR and in the units of its model. A ledger writes it.

`Funds` are the places where its money may be, and `TRANSITIONS` all ways from one to another.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum, auto
from typing import Self

from contract.access import Caller
from contract.catalog import Model
from contract.errors import RECORDING_TIMEOUT, STATE_UNAVAILABLE, UPSTREAM_TIMEOUT, WARMING_UP, ApiError
from contract.limits import STREAM_SLICE_OUTPUT_TOKENS
from state.billing.purse import Purse
from state.billing.usage import NO_USAGE, Bill, Entry, OverLimit, Usage, over_limit

Quantities = Mapping[str, int] | None

MARK_S = 1.0
"""Time between marks, and the age from which a request gets any."""

TIME_LIMITS = frozenset({UPSTREAM_TIMEOUT, RECORDING_TIMEOUT, WARMING_UP})
"""Faults that a client can provoke by the length of its request: what a stream has sent by then is billed."""


class Funds(Enum):
    """Place of a request's money, and whether the database may have a row of the request."""

    NONE = auto()  # no money and no row
    PURSE = auto()  # money of a purse, and no row
    OPENING = auto()  # no money; a mark may have made the row
    MOVING = auto()  # a mark may have made the row and moved the money of the purse there
    ROW = auto()  # a row of its own, with all its money


class Step(Enum):
    """Change of the funds."""

    HOLD = auto()  # a transaction holds the money in a row
    TAKE = auto()  # a purse gives the money
    MARK = auto()  # a transaction begins that makes the row where it is missing
    MARKED = auto()  # the row is known to exist
    LOSE = auto()  # the purse did not have the money
    FREE = auto()  # the money goes back to the purse


TRANSITIONS = {
    Step.HOLD: {Funds.NONE: Funds.ROW, Funds.ROW: Funds.ROW},  # the second time once purses are empty
    Step.TAKE: {Funds.NONE: Funds.PURSE},
    Step.FREE: {Funds.PURSE: Funds.NONE},
    Step.MARK: {
        **dict.fromkeys((Funds.NONE, Funds.OPENING), Funds.OPENING),
        **dict.fromkeys((Funds.PURSE, Funds.MOVING), Funds.MOVING),
        Funds.ROW: Funds.ROW,
    },
    Step.MARKED: dict.fromkeys((Funds.OPENING, Funds.MOVING, Funds.ROW), Funds.ROW),
    Step.LOSE: {Funds.MOVING: Funds.OPENING},
}
"""The legal steps, and where each leads from where."""


class Reservation:
    """Money held for one billed request. The first of `settle` and `void` wins; later calls change nothing.

    Args:
        top_up: holds that many micro-EUR more; False where it has ended. Raises OverLimit. `Ledger._top_up`.
        settle: posts its bill; gives what was charged. `Ledger._settle`.
        void: releases what it holds in a row; is done, with 0, once it has. `Ledger.void`.

    Attributes:
        held_micro_eur: 0 for callers without a limit.
        used: usage that `note` last reported, and in the end the billed one.
        marked: usage that the database has; None before the first time.
        funds: place of the money; changed by `move` only.
        purse: the purse that may have the money: while funds are PURSE or MOVING.
        waited_s: gives the seconds of its wait for an engine.
        end: gives the micro-EUR that were charged, 0 where it is void; None until it is on the way there.
    """

    def __init__(
        self,
        caller: Caller,
        entry: Entry,
        top_up: Callable[[Reservation, int], Awaitable[bool]],
        settle: Callable[[Bill], asyncio.Future[int]],
        void: Callable[[Reservation], asyncio.Future[int]],
    ) -> None:
        self.entry = entry
        self.held_micro_eur = 0
        self.used = NO_USAGE
        self.marked: Usage | None = None
        self.funds = Funds.NONE
        self.purse: Purse | None = None
        self._top_up = top_up
        self._settle = settle
        self._void = void
        self.caller = caller
        self._opened_s = time.monotonic()
        self.waited_s: Callable[[], float] = float
        self.end: asyncio.Future[int] | None = None

    @property
    def has_ended(self) -> bool:
        """Says if it is settled or void, or on the way there."""
        return self.end is not None

    @property
    def may_have_row(self) -> bool:
        """Says if the database may have a row of it."""
        return self.funds not in (Funds.NONE, Funds.PURSE)

    def move(self, step: Step, purse: Purse | None = None) -> None:
        """Takes a step of `TRANSITIONS`; `purse` with TAKE. Raises KeyError for any other."""
        self.funds = TRANSITIONS[step][self.funds]
        self.purse = (purse or self.purse) if self.funds in (Funds.PURSE, Funds.MOVING) else None
        if step is Step.LOSE:
            self.held_micro_eur = 0

    def recorded(self, used: Usage) -> None:
        """The database has a row that says `used`."""
        self.move(Step.MARKED)
        self.marked = used

    def note(self, cost_micro_eur: int, quantity: int, unit: str, quantities: Quantities = None) -> None:
        """Usage of the request up to now: billed if the process ends before the request does."""
        self.used = Usage(cost_micro_eur, quantity, unit, quantities)

    async def limit(self, caller: Caller, micro_eur: int) -> None:
        """The limits of `caller` hold from now on: `micro_eur` are held if there were none. Raises as `top_up` does."""
        self.caller = caller
        if not self.held_micro_eur:
            await self.top_up(max(1, micro_eur))

    def is_due(self) -> bool:
        """Says if it has used more than is recorded, and is old enough to be worth it."""
        is_old = time.monotonic() - self._opened_s >= MARK_S
        return is_old and not self.has_ended and self.used not in (NO_USAGE, self.marked)

    async def top_up(self, micro_eur: int) -> None:
        """Holds more before a stream continues.

        Raises what `Ledger.reserve` raises; settle what was produced so far.
        """
        if micro_eur <= 0 or not (self.caller.org_limited or self.caller.user_limited):
            return
        try:
            is_held = await self._top_up(self, micro_eur)
        except OverLimit as refused:
            raise over_limit(refused, self.caller) from None
        if not is_held:
            raise STATE_UNAVAILABLE()
        self.held_micro_eur += micro_eur

    async def settle(self, cost_micro_eur: int, quantity: int, unit: str, quantities: Quantities = None) -> int:
        """Bills the request once, even if the caller is cancelled. `quantities` says by unit what `quantity` adds up.

        Returns the micro-EUR charged: less than the cost only where the limit forbids more than the reservation.
        """
        return await self._bill(Usage(cost_micro_eur, quantity, unit, quantities))

    async def settle_noted(self) -> None:
        """Bills what was noted; voids where that is nothing."""
        await (self._bill(self.used) if self.used.quantity else self.void())

    async def _bill(self, used: Usage) -> int:
        if self.end is None:
            self.used = used
            took_ms = round(1000 * (time.monotonic() - self._opened_s))
            waited_ms = min(took_ms, round(1000 * self.waited_s()))
            paid = self._pay_from_purse(used.cost_micro_eur)
            bill = Bill(self.entry, used, took_ms, waited_ms, self.may_have_row, *paid)
            self.end = self._settle(bill)
        return await asyncio.shield(self.end)

    def _pay_from_purse(self, cost_micro_eur: int) -> tuple[str | None, int]:
        """The id of the purse that pays, and how many micro-EUR; None where no purse has the money."""
        if self.purse is None:
            return None, 0
        if self.funds is Funds.PURSE:
            return self.purse.entry.id, self.purse.cover(self.held_micro_eur, cost_micro_eur)
        # The money may be in the row by now: the purse gives no more than that, and nothing goes back to it.
        return self.purse.entry.id, min(cost_micro_eur, self.held_micro_eur)

    async def void(self) -> None:
        """Releases what is held without billing, unless the request was settled."""
        if self.end is None:
            self.end = self._void(self)
            if self.funds is Funds.PURSE and self.purse:
                self.purse.free_micro_eur += self.held_micro_eur
                self.move(Step.FREE)
        await asyncio.shield(self.end)


class OpenBill:
    """The bill of one request while it grows, in the units of its model. Leaving it as a context manager settles.

    `RequestContext.bill` makes it; flows report by `progress` what was made so far.

    Args:
        current: `Accounts.current`, the record of a caller's key now. Raises INVALID_API_KEY where it was revoked,
            EXPIRED_API_KEY.
        begun: returns the debt of a client that leaves after the engine has begun and before anything was counted.
        is_stream: whether the client gets the answer while it is made.
    """

    def __init__(
        self,
        reservation: Reservation,
        model: Model,
        reserved_micro_eur: int,
        unit: str,
        current: Callable[[Caller], Awaitable[Caller]],
        begun: Callable[[], Mapping[str, int]],
        *,
        is_stream: bool,
    ) -> None:
        self._reservation = reservation
        self._model = model
        self._reserved_micro_eur = reserved_micro_eur
        self._unit = unit
        self._current = current
        self._begun = begun
        self._is_stream = is_stream
        self._is_counted = False
        self._used: dict[str, int] = {}
        self._is_closed = False

    async def expect(self, **most: int) -> None:
        """Reserves the price of `most`, an upper bound that was not known before. Raises a spend limit."""
        more = self._model.cost_micro_eur(**most) - self._reserved_micro_eur
        if more > 0:
            await self._reservation.top_up(more)
            self._reserved_micro_eur += more

    async def progress(self, **used: int) -> None:
        """Takes cumulative quantities by unit.

        Raises a spend limit if the next slice cannot be reserved, INVALID_API_KEY or EXPIRED_API_KEY where the key has
        ended.
        """
        cost = self._model.cost_micro_eur(**used)
        # Should this process have to end before the request does, this is billed.
        self._reservation.note(cost, sum(used.values()), self._unit, _nonzero(used))
        await self._go_on(used, cost)

    async def count(self, **used: int) -> None:
        """`progress` of an answer of which nothing was sent yet: it is worth nothing if this process ends."""
        self._is_counted = True
        await self._go_on(used, self._model.cost_micro_eur(**used))

    async def _go_on(self, used: dict[str, int], cost: int) -> None:
        self._used = used
        # A limit that was set meanwhile holds for what is under way, and a key that was revoked ends it.
        caller = await self._current(self._reservation.caller)
        if caller is not self._reservation.caller:
            await self._reservation.limit(caller, self._reserved_micro_eur)
        if cost <= self._reserved_micro_eur:
            return
        await self.expect(**used | {"output_tokens": used.get("output_tokens", 0) + STREAM_SLICE_OUTPUT_TOKENS})

    async def settle(self, **used: int) -> None:
        """Writes the usage line. Call it before the last byte goes out; leaving the block does it otherwise."""
        self._used = used = used or self._used
        self._is_closed = True
        await self._reservation.settle(
            self._model.cost_micro_eur(**used), sum(used.values()), self._unit, _nonzero(used)
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Settles what was produced or begun, or voids what failed by our fault or produced nothing."""
        if self._is_closed:
            return
        owed = self._used if any(self._used.values()) else self._charge_on_disconnect(error)
        if any(owed.values()) and not self._is_our_fault(error):
            await self.settle(**owed)
        else:
            await self._reservation.void()

    def _charge_on_disconnect(self, error: BaseException | None) -> Mapping[str, int]:
        # A client that leaves is no `Exception`: it cancels.
        return self._begun() if error and not isinstance(error, Exception) else {}

    def _is_our_fault(self, error: BaseException | None) -> bool:
        if isinstance(error, ApiError):
            is_time_limit = error.fault in TIME_LIMITS and (self._is_stream or self._is_counted)
            return error.fault.status >= 500 and not is_time_limit
        return isinstance(error, Exception)


def _nonzero(used: Mapping[str, int]) -> Mapping[str, int]:
    """Units of which something was used: what a usage line keeps, so that its cost can be computed again."""
    return used if all(used.values()) else {unit: number for unit, number in used.items() if number}
