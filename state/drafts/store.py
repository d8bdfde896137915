"""The store of drafts. Of any number of processes one works on a draft at a time, and any of them may go on."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from sqlalchemy import Update, delete, select, update

from concurrency.background import attempted, in_background
from contract.access import Caller
from contract.errors import QUOTA_EXCEEDED, STATE_UNAVAILABLE, ApiError, without_text
from contract.limits import DRAFT_KEPT_S, DRAFT_S, KEPT_DRAFTS
from contract.voice_design.draft import VoiceSpec
from state.billing.usage import OverLimit, over_limit
from state.blobs.base import Blobs
from state.database.base import Database
from state.database.tables import drafts
from state.drafts import changes
from state.drafts.draft import ID_PATTERN, Adoption, DesignedVoice, Draft, DraftClaim, draft_of, new_id
from state.retries import Spawn, retried
from state.voices import OwnVoice

T = TypeVar("T")
log = logging.getLogger(f"parlance.{__name__}")

LEASE_S = 20
"""A worker that does not renew its lease for this long is taken for dead."""

FAILED_KEPT_S = 24 * 3600
DISCARDED_KEPT_S = 3600
"""They cost nothing, so a client could leave any number of their rows behind."""

HELD_LONGER_S = 600
"""The money of a draft is held beyond its end: the draft's own transactions free it, and a reaper what they leave."""

SWEPT_AT_ONCE = 50
SWEEP_AGAIN_S = 300
"""Pause after bytes could not be deleted."""

EXPIRED = f"the draft was not finished within {DRAFT_S // 60} minutes; nothing was billed, so you can order it again"


class Drafts:
    """The store of drafts.

    Args:
        database: database of the rows.
        blobs: store of clips and samples.
        clock: the database's time, in seconds since 1970.

    Attributes:
        to_the_limit: `Ledger.to_the_limit` of this process, which may hold money in advance.
        spawn: starts work that outlives its request; of a `State`, its `Ledger.spawn`.
    """

    def __init__(self, database: Database, blobs: Blobs, clock: Callable[[], float]) -> None:
        self._database, self._blobs, self._clock = database, blobs, clock
        self.to_the_limit: Callable[[int, Callable[[], Awaitable[None]]], Awaitable[None]] = lambda _, post: post()
        self.spawn: Spawn = in_background

    async def order(
        self, caller: Caller, spec: VoiceSpec, *, model: str, line: str, estimate_micro_eur: int, request_id: str
    ) -> Draft:
        """A new draft of the caller's organisation, and the estimate held for it where there is a spend limit.

        Raises VOICE_LIMIT_REACHED if a voice of the organisation has its slug, TOO_MANY_PENDING, QUOTA_EXCEEDED.
        """
        now_s = self._now_s()
        who = (caller.org_id, caller.user_id, caller.key_id, request_id)
        draft = Draft(new_id(), *who, line, model, spec, "pending", now_s, work_at=0)
        hold = max(1, estimate_micro_eur) if caller.org_limited or caller.user_limited else 0
        row = partial(changes.order, draft=draft, ends_at=now_s + DRAFT_KEPT_S, hold_micro_eur=hold)
        order = partial(self._database.run, partial(row, lease_s=DRAFT_S + HELD_LONGER_S), row=caller.org_id)
        try:
            await self._twice(lambda _: self.to_the_limit(caller.org_id, order))
        except OverLimit as refused:
            raise over_limit(refused, caller, QUOTA_EXCEEDED) from None
        except ApiError as error:
            if error.fault is STATE_UNAVAILABLE:  # it may have been recorded all the same
                self.spawn(retried("discard a refused draft", partial(self._drop_lost, draft), at_once=True))
            raise
        # From here on its client gets the id, so what is made may be billed.
        name, release = "release a draft for work", partial(self.release, DraftClaim(draft, None))
        if not await attempted(name, release):
            self.spawn(retried(name, release))
        return draft

    async def _twice(self, attempt: Callable[[bool], Awaitable[T]]) -> T:
        """The result of `attempt`, which is made again, with True, where the answer to the first may have been lost."""
        began_s = self._now_s()
        try:
            return await attempt(False)
        except ApiError as error:
            if error.fault is not STATE_UNAVAILABLE or self._now_s() > began_s + 1:  # a client waits no longer
                raise
        return await attempt(True)

    async def _drop_lost(self, draft: Draft) -> None:
        if await self.read(draft.id):
            await self.discard(draft.org_id, draft.id)

    async def find(self, org_id: int, draft_id: str) -> Draft:
        """An organisation's draft. Raises NOT_FOUND, for another's in the same words as for one that never was."""
        draft = await self.read(draft_id) if ID_PATTERN.fullmatch(draft_id) else None
        if draft and self._is_late(draft):
            await self._expire(draft_id)
            draft = await self.read(draft_id)
        if draft is None or draft.org_id != org_id:
            raise changes.unknown(draft_id)
        return draft

    async def read(self, draft_id: str) -> Draft | None:
        """A draft of any organisation, as it stands; None if there is none."""
        query = select(drafts).where(drafts.c.id == draft_id)
        row = await self._database.run(lambda c: c.execute(query).one_or_none())
        return None if row is None else draft_of(row)

    async def of(self, org_id: int) -> list[Draft]:
        """The KEPT_DRAFTS newest drafts of an organisation, the newest first."""
        query = select(drafts).where(drafts.c.org_id == org_id)
        newest = query.order_by(drafts.c.created_at.desc(), drafts.c.id).limit(KEPT_DRAFTS)
        match = [draft_of(row) for row in await self._database.run(lambda c: list(c.execute(newest)))]
        late = [draft for draft in match if self._is_late(draft)]
        for draft in late:
            await self._expire(draft.id)
        return await self.of(org_id) if late else match

    # --- work

    async def claim(self, draft_id: str) -> DraftClaim | None:
        """The draft to work on for LEASE_S; None if another process does, or there is nothing to do."""
        now_s, worker = self._now_s(), secrets.token_hex(16)
        free = (drafts.c.id == draft_id, drafts.c.state == "pending", drafts.c.work_at <= now_s, changes.in_time(now_s))
        draft = await self._changed(update(drafts).where(*free).values(worker=worker, work_at=now_s + LEASE_S))
        return None if draft is None else DraftClaim(draft, worker)

    async def renew(self, claim: DraftClaim) -> bool:
        """LEASE_S more. False if the work is for nothing: discarded, expired, or another process's."""
        now_s = self._now_s()
        renewal = changes.claimed(claim).where(changes.in_time(now_s)).values(work_at=now_s + LEASE_S)
        return await self._changed(renewal) is not None

    async def release(self, claim: DraftClaim) -> None:
        """Lets the next one go on at once."""
        await self._changed(changes.claimed(claim).values(work_at=0))

    async def count_failure(self, claim: DraftClaim) -> int:
        """One more failure of the designer. Returns how many there are; 0 if this worker has lost the draft."""
        draft = await self._changed(changes.claimed(claim).values(failures=drafts.c.failures + 1))
        return draft.failures if draft else 0

    async def finish(self, claim: DraftClaim, voice: DesignedVoice, cost_micro_eur: int) -> Draft | None:
        """The draft, ready and billed; None if it was discarded, has expired, or belongs to another process.

        The bytes are stored already.
        """
        finish = partial(changes.finish, claim=claim, voice=voice, cost_micro_eur=cost_micro_eur, now_s=self._now_s())
        return await self._database.run(finish, row=claim.draft.org_id)

    async def fail(self, claim: DraftClaim, why: str) -> None:
        """The draft has failed for good. Nothing is billed."""
        now_s = self._now_s()
        change = changes.move("fail", claim.draft.id).where(drafts.c.worker == claim.worker)
        end = partial(changes.end, change=change, why=why, now_s=now_s, ends_at=now_s + FAILED_KEPT_S)
        await self._database.run(end, row=claim.draft.org_id)

    async def waiting(self, most: int) -> list[str]:
        """Ids of up to `most` drafts that need attention, those first that have waited longest."""
        due = select(drafts.c.id).where(drafts.c.work_at <= self._now_s())
        first = due.order_by(drafts.c.work_at, drafts.c.created_at).limit(most)
        return await self._database.run(lambda c: list(c.execute(first).scalars()))

    def waits(self, draft: Draft) -> bool:
        """Says if it needs attention now."""
        return draft.work_at is not None and draft.work_at <= self._now_s()

    # --- ends

    async def adopt(self, org_id: int, draft_id: str, adoption: Adoption) -> tuple[Draft, OwnVoice]:
        """The draft and its voice, which is there from now on.

        Raises NOT_FOUND, INVALID_REQUEST unless the draft is ready or for a malformed slug, VOICE_LIMIT_REACHED.
        """
        await self.find(org_id, draft_id)
        adopt = partial(changes.adopt, org_id=org_id, draft_id=draft_id, adoption=adoption, now_s=self._now_s())
        return await self._twice(lambda is_again: self._database.run(partial(adopt, is_again=is_again), row=org_id))

    async def refuse(self, draft_id: str, why: str) -> None:
        """A ready draft is not adopted by itself, and says why; it stays ready."""
        ready = (drafts.c.id == draft_id, drafts.c.state == "ready")
        await self._changed(update(drafts).where(*ready).values(work_at=None, error=why))

    async def discard(self, org_id: int, draft_id: str) -> Draft:
        """The draft, discarded from whatever state; its bytes are gone, and the voice that it was adopted as.

        Raises NOT_FOUND.
        """
        if not ID_PATTERN.fullmatch(draft_id):
            raise changes.unknown(draft_id)
        now_s = self._now_s()
        ends_at = now_s + DISCARDED_KEPT_S
        draft = await self._database.run(lambda c: changes.discard(c, org_id, draft_id, now_s, ends_at), row=org_id)
        await self._delete_bytes(draft, ends_at)
        return draft

    async def settle_discarded(self, draft: Draft, cost_micro_eur: int, synthesis_ms: int) -> None:
        """Records what the work on `draft` took, once it has ended: that is billed if the draft was discarded."""
        await self._database.run(
            lambda c: changes.settle_discarded(c, draft.id, cost_micro_eur, synthesis_ms), row=draft.org_id
        )

    async def expire(self) -> None:
        """Ends drafts that were not finished in time."""
        late = (drafts.c.work_at.is_not(None), drafts.c.state == "pending", ~changes.in_time(self._now_s()))
        query = select(drafts.c.id).where(*late).limit(SWEPT_AT_ONCE)
        for draft_id in await self._database.run(lambda c: list(c.execute(query).scalars())):
            await self._expire(draft_id)

    async def sweep(self) -> None:
        """Deletes bytes that are left of failed and discarded drafts, and rows that were kept for long enough."""
        now_s = self._now_s()
        query = select(drafts).where(drafts.c.sweep_at <= now_s).order_by(drafts.c.sweep_at).limit(SWEPT_AT_ONCE)
        for row in await self._database.run(lambda c: list(c.execute(query))):
            draft = draft_of(row)
            if row.ends_at > now_s:
                await self._delete_bytes(draft, row.ends_at)
                continue
            await self._end(draft, now_s)

    async def _end(self, draft: Draft, now_s: int) -> None:
        # Discarded first: nobody may adopt it between its bytes and its row.
        ended = await self._database.run(lambda c: changes.discard_old(c, draft.id, now_s), row=draft.org_id)
        if ended and await self._delete_bytes(draft, now_s):
            row = delete(drafts).where(drafts.c.id == draft.id, drafts.c.state == "discarded")
            await self._database.run(lambda c: c.execute(row))

    def _is_late(self, draft: Draft) -> bool:
        return draft.state == "pending" and draft.expires_at <= self._now_s()

    async def _expire(self, draft_id: str) -> None:
        now_s = self._now_s()
        change = changes.move("expire", draft_id).where(~changes.in_time(now_s))
        await self._database.run(lambda c: changes.end(c, change, EXPIRED, now_s, now_s + FAILED_KEPT_S))

    async def _delete_bytes(self, draft: Draft, sweep_at: int) -> bool:
        """Says if they are gone; the row is looked at again at `sweep_at`, or soon if the store fails."""
        try:
            await self._blobs.delete_all(draft.name)
            is_done = True
        except Exception as error:
            log.error("the bytes of a draft could not be deleted yet: %s", without_text(error))
            sweep_at, is_done = self._now_s() + SWEEP_AGAIN_S, False
        swept = (drafts.c.id == draft.id, drafts.c.sweep_at.is_not(None))
        await self._changed(update(drafts).where(*swept).values(sweep_at=sweep_at))
        return is_done

    async def _changed(self, change: Update) -> Draft | None:
        """The draft after `change`; None if that changed no row."""
        return await self._database.run(lambda c: changes.changed(c, change))

    def _now_s(self) -> int:
        return int(self._clock())
