"""Money that this process holds in advance, so that most requests are reserved without asking the database.

    Purses.take --> settle: the bill says what the purse pays (`postings.settle`)
                |-> mark: the request gets a row of its own, with its money (`upkeep.mark`)
                '-> void: it is free again

A purse is one row of `reservations`, leased like every other, for an organisation or a user of it. It is filled for
many requests at a time, but with no more than a share of what the limits have left: near a limit there is none, and
each request holds exactly what it needs in a row of its own. What requests have taken stays in the row until it is
spent, so that what is spent and held never exceeds a limit.
"""

from __future__ import annotations

import asyncio
import logging
import math
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from sqlalchemy import Connection

from contract.errors import without_text
from state.billing import postings
from state.billing.postings import LEASE_S
from state.billing.usage import Entry, PurseGone
from state.database.base import Database
from state.database.tables import PURSE

log = logging.getLogger(f"parlance.{__name__}")

SHARE = 16
"""A purse gets at most this fraction of what the limits have left, and is closed when it has twice as much."""

REQUESTS = 256
"""It is filled for at most this many requests like the one that finds it empty."""

UNUSED_TURNS = 5
"""Turns, of a second each, after which an unused purse is closed."""

MAX_TURNS = LEASE_S
"""Turns after which each is closed: what a bug may have lost of it is free again then."""

Payer = tuple[int, int | None]
"""Organisation and user."""


class Purse:
    """Amount that one row holds, and its free part.

    Attributes:
        entry: the row.
        is_open: whether the database may have it.
        is_gone: whether its row no longer holds its amount; nothing may be taken from it.
        free_micro_eur: part that no request has taken.
        most_micro_eur: largest amount that fits into a purse, as far as is known this second.
        filling: the transaction that is filling it.
        turns, unused: number of times that it was looked after, in all and since it was last used.
    """

    def __init__(self, owner: Payer) -> None:
        # Behind all other ids: rows are locked in this order.
        self.entry = Entry(f"{PURSE}-{uuid.uuid4().hex}", *owner, "", PURSE, PURSE, PURSE)
        self.is_open = self.is_gone = False
        self.free_micro_eur = self.turns = self.unused = 0
        self.most_micro_eur = math.inf
        self.filling: asyncio.Task[None] | None = None

    def take(self, micro_eur: int) -> bool:
        """Takes that amount for a request, or nothing where it has less."""
        if self.is_gone or self.free_micro_eur < micro_eur:
            return False
        self.free_micro_eur -= micro_eur
        self.unused = 0
        return True

    def cover(self, held_micro_eur: int, cost_micro_eur: int) -> int:
        """Pays for a request that took `held_micro_eur`: its cost, as far as there is enough. The rest is free again.

        Returns what is paid.
        """
        covered = min(cost_micro_eur, held_micro_eur + self.free_micro_eur)
        self.free_micro_eur += held_micro_eur - covered
        return covered


class Purses:
    """The purses of one process.

    Args:
        leave: moves the money of open requests out of a purse, and waits for the bills that it pays. Returns whether
            nothing needs the purse any more.
    """

    def __init__(
        self,
        database: Database,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        leave: Callable[[Purse], Awaitable[bool]],
    ) -> None:
        self._database = database
        self._spawn = spawn
        self._leave = leave
        self._purses: dict[Payer, Purse] = {}
        self._closing: dict[asyncio.Task[None], int] = {}

    @property
    def ids(self) -> set[str]:
        """Ids of the rows of open ones."""
        return {purse.entry.id for purse in self._purses.values() if purse.is_open}

    def has_any(self, owner: Payer) -> bool:
        """Says if money is free."""
        purse = self._purses.get(owner)
        return purse is not None and purse.free_micro_eur > 0 and not purse.is_gone

    def lose(self, purse_id: str) -> None:
        """Nothing is taken from this purse any more."""
        for purse in self._purses.values():
            purse.is_gone |= purse.entry.id == purse_id

    async def take(self, owner: Payer, micro_eur: int) -> Purse | None:
        """The purse that has given that amount; None where it does not fit into one. Raises STATE_UNAVAILABLE."""
        while True:
            purse = self._purses.get(owner)
            if purse is None:
                self._purses[owner] = Purse(owner)
            elif purse.is_gone:
                self._start_closing(owner, purse)
            elif purse.take(micro_eur):
                return purse
            elif micro_eur > purse.most_micro_eur:
                return None
            else:
                purse.filling = purse.filling or self._spawn(self._fill(purse, micro_eur))
                await asyncio.shield(purse.filling)

    def empty(self, org_id: int) -> set[asyncio.Task[None]]:
        """Closes the purses of an organisation. When these tasks are done, their money is free for others."""
        purses = [(owner, purse) for owner, purse in self._purses.items() if owner[0] == org_id]
        closing = {task for task, payer in self._closing.items() if payer == org_id}
        closing |= {self._start_closing(*each) for each in purses if each[1].is_open and not each[1].filling}
        return closing | {purse.filling for _, purse in purses if purse.filling}

    async def tend(self) -> None:
        """Closes what is not used, or more than its share. To be done every second."""
        for owner, purse in list(self._purses.items()):
            purse.turns, purse.unused, purse.most_micro_eur = purse.turns + 1, purse.unused + 1, math.inf
            if purse.filling:
                continue
            is_old = purse.unused > UNUSED_TURNS or purse.turns > MAX_TURNS
            is_to_go = is_old or (purse.is_open and await self._is_too_much(purse))
            if not is_to_go or self._purses.get(owner) is not purse:
                continue
            if purse.is_open:
                self._start_closing(owner, purse)
            else:
                del self._purses[owner]

    async def close(self) -> None:
        """Closes all."""
        while tasks := {task for org_id, _ in list(self._purses) for task in self.empty(org_id)} | self._closing.keys():
            await asyncio.wait(tasks)

    def _start_closing(self, owner: Payer, purse: Purse) -> asyncio.Task[None]:
        fresh = self._purses[owner] = Purse(owner)
        fresh.most_micro_eur = purse.most_micro_eur
        closing = self._spawn(self._close(purse))
        self._closing[closing] = owner[0]
        closing.add_done_callback(self._closing.pop)
        return closing

    async def _fill(self, purse: Purse, micro_eur: int) -> None:
        transaction = partial(
            fill, purse=purse.entry, is_new=not purse.is_open, free=purse.free_micro_eur, amount=micro_eur
        )
        try:
            # Not durable: the row is worth nothing without this process.
            added = await self._database.run(transaction, durable=False, row=purse.entry.org_id)
            purse.free_micro_eur += added
            purse.is_open |= added > 0
            if not added:
                purse.most_micro_eur = micro_eur - 1
        except PurseGone:
            purse.is_gone = True
        except BaseException:
            # Nobody knows whether the row is there.
            purse.is_gone = True
            raise
        finally:
            purse.filling = None

    async def _is_too_much(self, purse: Purse) -> bool:
        """Says if more than twice its share is free: a limit was lowered, or others use what it leaves."""
        of = purse.entry
        transaction = partial(postings.left_of, org_id=of.org_id, user_ids=[of.user_id])
        left = await self._database.run(transaction, durable=False, row=of.org_id)
        return any(purse.free_micro_eur > (rest + purse.free_micro_eur) * 2 // SHARE for rest in left.values())

    async def _close(self, purse: Purse) -> None:
        if not await self._leave(purse):
            return
        try:
            await self._database.run(partial(postings.void, entry=purse.entry), row=purse.entry.org_id)
        except Exception as error:
            log.error("could not release what a purse holds; its lease will expire: %s", without_text(error))


def fill(connection: Connection, purse: Entry, is_new: bool, free: int, amount: int) -> int:
    """Holds more for a purse that has `free` left, for as many times the amount as its share of the limits allows.

    Returns the micro-EUR added; 0 where it would not have twice the amount. Raises PurseGone.
    """
    if not is_new and not connection.execute(postings.RENEW, {"of_id": purse.id}).rowcount:
        raise PurseGone(purse.id)
    left = postings.left_of(connection, purse.org_id, [purse.user_id]).values()
    times = min((REQUESTS, *((rest + free) // SHARE // amount for rest in left)))
    added = times * amount - free
    if times < 2 or added <= 0:
        return 0
    if is_new:
        postings.reserve(connection, purse, added)
    else:
        postings.pay(connection, {purse.id: -added})
        postings.hold_budgets(connection, purse, added)
    return added
