"""Money around one engine call: reserve before the engine is asked, settle what it counted.

    async with bill(context, model, {"input_tokens": 900, "output_tokens": 1024}) as account:
        ...
        await account.progress(input_tokens=12, output_tokens=40)      # streams: tops up before the reserve is passed

Leaving the block settles what `progress` last said: also when the client went away, and when this server has to stop.
A client that went away before anything was counted pays what the engine had `begun`, if the call had gone out to it.
What fails by our fault before it is settled costs nothing, except what a time limit took from a stream. So a whole
answer is settled last, when all that goes out is there: a flow that calls an engine for one is given `render`, which
makes the reply of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from contract.catalog import Model
from contract.errors import RECORDING_TIMEOUT, UPSTREAM_TIMEOUT, WARMING_UP, ApiError
from contract.limits import STREAM_SLICE_OUTPUT_TOKENS
from deployments.ingress.context import RequestContext
from state.billing.reservation import Reservation

TIME_LIMITS = frozenset({UPSTREAM_TIMEOUT, RECORDING_TIMEOUT, WARMING_UP})
"""How long an answer takes, the request decides too: what a stream has sent until then is no gift."""


class Account:
    """The bill of one request while it grows.

    Attributes:
        begun: gives what is owed once the engine has begun, for a client that leaves before anything was counted.
        is_stream: the client gets what is made while it is made.
    """

    def __init__(
        self,
        context: RequestContext,
        model: Model,
        reservation: Reservation,
        reserved_micro_eur: int,
        unit: str,
        begun: Callable[[], Mapping[str, int]],
        *,
        is_stream: bool,
    ) -> None:
        self._context = context
        self._caller = context.caller
        self._model = model
        self._reservation = reservation
        self._reserved_micro_eur = reserved_micro_eur
        self._unit = unit
        self._begun = begun
        self._is_stream = is_stream
        self._is_counted = False
        self._used: dict[str, int] = {}
        self._closed = False

    async def expect(self, **most: int) -> None:
        """Reserves the price of `most`, an upper bound that was not known before. Raises a spend limit."""
        more = self._model.cost_micro_eur(**most) - self._reserved_micro_eur
        if more > 0:
            await self._reservation.top_up(more)
            self._reserved_micro_eur += more

    async def progress(self, **used: int) -> None:
        """Takes cumulative quantities by unit.

        Raises a spend limit if the next slice cannot be reserved, INVALID_API_KEY where the key was revoked meanwhile.
        """
        cost = self._model.cost_micro_eur(**used)
        # Should this process have to end before the request does, this is billed.
        self._reservation.note(cost, sum(used.values()), self._unit, _nonzero(used))
        await self._go_on(used, cost)

    async def count(self, **used: int) -> None:
        """`progress` of an answer that nobody has a part of yet: it is worth nothing if this process ends."""
        self._is_counted = True
        await self._go_on(used, self._model.cost_micro_eur(**used))

    async def _go_on(self, used: dict[str, int], cost: int) -> None:
        self._used = used
        await self._follow_key()
        if cost <= self._reserved_micro_eur:
            return
        await self.expect(**used | {"output_tokens": used.get("output_tokens", 0) + STREAM_SLICE_OUTPUT_TOKENS})

    async def settle(self, **used: int) -> None:
        """Writes the usage line. Call it before the last byte goes out; leaving the block does it otherwise."""
        self._used = used or self._used
        self._closed = True
        used = self._used
        cost, quantity = self._model.cost_micro_eur(**used), sum(used.values())
        await asyncio.shield(self._reservation.settle(cost, quantity, self._unit, _nonzero(used)))

    async def close(self, error: BaseException | None) -> None:
        """Settles what was produced or begun, or voids what failed by our fault or produced nothing."""
        if self._closed:
            return
        owed = self._used if any(self._used.values()) else self._begun_for(error)
        if any(owed.values()) and not self._is_our_fault(error):
            await self.settle(**owed)
        else:
            self._closed = True
            await asyncio.shield(self._reservation.void())

    async def _follow_key(self) -> None:
        """Has a limit that was set meanwhile hold for what is under way, and ends what a revoked key has begun."""
        caller = await self._context.service.state.accounts.current(self._caller)
        if caller is not self._caller:
            self._caller = caller
            await self._reservation.limit(caller, self._reserved_micro_eur)

    def _begun_for(self, error: BaseException | None) -> Mapping[str, int]:
        # A client that leaves is no `Exception`: it cancels.
        has_left = error is not None and not isinstance(error, Exception)
        return self._begun() if has_left and self._context.timings.has_begun else {}

    def _is_our_fault(self, error: BaseException | None) -> bool:
        if isinstance(error, ApiError):
            is_by_choice = error.fault in TIME_LIMITS and (self._is_stream or self._is_counted)
            return error.fault.status >= 500 and not is_by_choice
        return isinstance(error, Exception)


def _nonzero(used: Mapping[str, int]) -> dict[str, int]:
    """Units of which something was used: what a usage line keeps, so that its cost can be computed again."""
    return {unit: number for unit, number in used.items() if number}


@asynccontextmanager
async def bill(
    context: RequestContext,
    model: Model,
    estimate: Mapping[str, int],
    unit: str = "tokens",
    *,
    begun: Callable[[], Mapping[str, int]] = dict,
    is_stream: bool = False,
) -> AsyncIterator[Account]:
    """Reserves the price of `estimate`, an upper bound by unit. Raises ORG_SPEND_LIMIT or USER_SPEND_LIMIT."""
    cost = model.cost_micro_eur(**estimate)
    reservation = await context.service.state.ledger.reserve(
        context.caller,
        line=model.billing_key,
        model=model.id,
        estimate_micro_eur=cost,
        request_id=context.request_id,
    )
    account = Account(context, model, reservation, cost, unit, begun, is_stream=is_stream)
    try:
        yield account
    except BaseException as error:
        await account.close(error)
        raise
    await account.close(None)
