"""Usage lines of one organisation, several in one transaction: each alone would wait for the budget that all share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from state.billing import postings
from state.billing.reservation import Bill
from state.database.base import Database

AT_ONCE = 100
"""Bills in one transaction."""

Spawn = Callable[[Coroutine[Any, Any, None]], object]


class Settling:
    """Posts bills of this process.

    Args:
        database: where budgets live.
        spawn: runs a coroutine to its end, whatever becomes of the request.
    """

    def __init__(self, database: Database, spawn: Spawn) -> None:
        self._database = database
        self._spawn = spawn
        self._waiting: dict[int, list[tuple[Bill, asyncio.Future[int]]]] = {}

    async def post(self, bill: Bill) -> int:
        """Writes the usage line and returns the micro-EUR charged. Raises what the database raises."""
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(bill.entry.org_id, [])
        waiting.append((bill, done))
        if len(waiting) == 1:
            self._spawn(self._work_off(bill.entry.org_id))
        return await done

    async def _work_off(self, org_id: int) -> None:
        """Whoever is first starts it; who comes while a transaction runs shares the next one."""
        waiting = self._waiting[org_id]
        try:
            while waiting:
                # The first stays in the list meanwhile: it shows that somebody works.
                batch = waiting[:AT_ONCE]
                await self._post(org_id, batch)
                del waiting[: len(batch)]
        finally:
            del self._waiting[org_id]
            for _, done in waiting:
                done.cancel()

    async def _post(self, org_id: int, batch: list[tuple[Bill, asyncio.Future[int]]]) -> None:
        bills = [bill for bill, _ in batch]
        try:
            charged = await self._database.run(partial(postings.settle, bills=bills), row=org_id)
        except Exception as error:
            if len(batch) > 1:
                await self._post_singly(org_id, batch)
            elif not batch[0][1].done():
                batch[0][1].set_exception(error)
            return
        for (_, done), micro_eur in zip(batch, charged, strict=True):
            if not done.done():
                done.set_result(micro_eur)

    async def _post_singly(self, org_id: int, batch: list[tuple[Bill, asyncio.Future[int]]]) -> None:
        """One bill may be at fault, and the others must not suffer for it; or nothing can be written at all."""
        for number, pair in enumerate(batch):
            await self._post(org_id, [pair])
            done = pair[1]
            if number == 0 and not done.cancelled() and (error := done.exception()):
                for _, other in batch[1:]:
                    if not other.done():
                        other.set_exception(error)
                return
