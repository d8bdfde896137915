"""Changes of a draft, each one statement, or one of these transactions.

    order               a row that waits for no work yet, and the money held for it
    finish              pending to ready, with the usage line
    end                 pending to failed, and the money goes back
    adopt               ready to adopted, with the voice
    discard             anything to discarded; the voice goes too
    settle_discarded    what its designer had spent on it by then

The rowcount of one conditional update decides who moves a draft, as `contract.voice_design.draft` says from where.
Rows are locked in the order organisation, draft, then money or voice, so transactions cannot deadlock.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Update, func, insert, select, update

from contract.errors import NOT_FOUND, TOO_MANY_PENDING, ApiError
from contract.limits import DRAFT_KEPT_S, DRAFT_S, KEPT_DRAFTS, PENDING_DRAFTS
from contract.voice_design.draft import TRANSITIONS, DraftEvent, refuse_adoption
from state.accounts import organisations
from state.billing import postings
from state.billing.usage import Bill, Usage
from state.database.tables import drafts
from state.drafts.draft import Adoption, DesignedVoice, Draft, DraftClaim, columns, draft_of, voice_column
from state.voices import OwnVoice, delete_voice, find_voice, insert_voice, slug_taken, slugs_in_use

UNIT = "synthesis_ms"
"""Unit of usage lines of drafts."""


def order(connection: Connection, draft: Draft, ends_at: int, hold_micro_eur: int, lease_s: int) -> None:
    """Adds the draft, and holds the money if there is a limit; does nothing where it has done so before.

    Raises VOICE_LIMIT_REACHED if its slug is a voice's, TOO_MANY_PENDING, and OverLimit.
    """
    organisations.lock(connection, draft.org_id)
    if connection.execute(select(drafts.c.id).where(drafts.c.id == draft.id)).all():
        return
    if draft.spec.slug in slugs_in_use(connection, draft.org_id):
        raise slug_taken(draft.spec.slug or "")
    recent = drafts.c.created_at > draft.created_at - DRAFT_S
    mine = (drafts.c.org_id == draft.org_id, drafts.c.state == "pending", recent)
    pending = connection.execute(select(func.count()).select_from(drafts).where(*mine)).scalar_one()
    if pending >= PENDING_DRAFTS:
        raise TOO_MANY_PENDING(
            f"{pending} drafts of your organisation are pending, the most that are possible at the same time; wait "
            "until one of them is ready, or discard one"
        )
    open = (drafts.c.org_id == draft.org_id, drafts.c.state.in_(("pending", "ready")))
    if connection.execute(select(func.count()).select_from(drafts).where(*open)).scalar_one() >= KEPT_DRAFTS:
        raise TOO_MANY_PENDING(
            f"your organisation has {KEPT_DRAFTS} drafts that are neither adopted nor deleted, which is its limit; "
            "adopt or delete some, then order again"
        )
    row = columns(draft) | dict.fromkeys(("work_at", "ends_at", "sweep_at"), ends_at)
    connection.execute(insert(drafts).values(row))
    if hold_micro_eur:
        postings.reserve(connection, draft.entry, hold_micro_eur, lease_s)


def finish(
    connection: Connection, claim: DraftClaim, voice: DesignedVoice, cost_micro_eur: int, now_s: int
) -> Draft | None:
    """The draft is ready and billed. None if it is not this worker's any more."""
    change = move("finish", claim.draft.id).where(drafts.c.worker == claim.worker, in_time(now_s))
    draft = changed(connection, change.values(made=voice_column(voice), worker=None, work_at=None))
    if draft is None:
        return None
    (charged,) = postings.settle(connection, [_bill(draft, cost_micro_eur, voice.synthesis_ms)])
    work_at = 0 if draft.spec.auto_adopt else None
    after = update(drafts).where(drafts.c.id == draft.id).values(cost_micro_eur=charged, work_at=work_at)
    return changed(connection, after)


def end(connection: Connection, change: Update, why: str, now_s: int, ends_at: int) -> None:
    """`change` ends a draft, which has failed, and what was held for it is free; nothing if it changes no row."""
    # What a worker may have stored is deleted from now on, the row later.
    ended = {"error": why, "worker": None, "work_at": None, "sweep_at": now_s, "ends_at": ends_at}
    if draft := changed(connection, change.values(ended)):
        postings.void(connection, draft.entry)


def adopt(
    connection: Connection, org_id: int, draft_id: str, adoption: Adoption, now_s: int, is_again: bool
) -> tuple[Draft, OwnVoice]:
    """The draft and its voice; does nothing where it `is_again` tried, and has done so before.

    Raises NOT_FOUND, INVALID_REQUEST unless it is ready, VOICE_LIMIT_REACHED.
    """
    organisations.lock(connection, org_id)
    draft = _locked(connection, org_id, draft_id)
    if is_again and draft.voice_slug:
        wish = replace(adoption, slug=adoption.slug or draft.spec.slug or draft.voice_slug)
        if (own := wish.voice(draft, (), now_s)) == find_voice(connection, org_id, draft.voice_slug):
            return draft, own
    refuse_adoption(draft.state)
    own = adoption.voice(draft, slugs_in_use(connection, org_id), now_s)
    insert_voice(connection, org_id, own)
    change = move("adopt", draft_id).values(voice_slug=own.voice.slug, work_at=None, error=None, sweep_at=None)
    adopted = changed(connection, change)
    assert adopted is not None, "the row is locked"
    return adopted, own


def discard(connection: Connection, org_id: int, draft_id: str, now_s: int, ends_at: int) -> Draft:
    """The draft, discarded, as is its voice. Raises NOT_FOUND.

    What was held for it is free, unless a process works on it: that one records first what the work has cost.
    """
    before = _locked(connection, org_id, draft_id)
    change = move("discard", draft_id).values(worker=None, work_at=None, voice_slug=None)
    after = changed(connection, change.values(sweep_at=now_s, ends_at=ends_at))
    assert after is not None, "the row is locked"
    is_leased = now_s < (before.work_at or 0) < before.created_at + DRAFT_KEPT_S
    if before.state != "pending" or not is_leased:
        postings.void(connection, before.entry)
    if before.voice_slug:
        delete_voice(connection, org_id, before.voice_slug)
    return after


def settle_discarded(connection: Connection, draft_id: str, cost_micro_eur: int, synthesis_ms: int) -> None:
    """Bills what was spent on a draft that was discarded meanwhile, and frees what was held; does nothing to others."""
    discarded = (drafts.c.id == draft_id, drafts.c.state == "discarded")
    row = connection.execute(select(drafts).where(*discarded).with_for_update()).one_or_none()
    if row is None:
        return
    if not synthesis_ms:
        postings.void(connection, draft_of(row).entry)
        return
    (charged,) = postings.settle(connection, [_bill(draft_of(row), cost_micro_eur, synthesis_ms)])
    connection.execute(update(drafts).where(*discarded).values(cost_micro_eur=charged))


def discard_old(connection: Connection, draft_id: str, now_s: int) -> bool:
    """Discards a draft that was kept for long enough. False if it was adopted, or is gone."""
    old = move("discard", draft_id).where(drafts.c.sweep_at <= now_s, drafts.c.ends_at <= now_s)
    if draft := changed(connection, old.values(worker=None, work_at=None)):
        postings.void(connection, draft.entry)
    return draft is not None


def unknown(draft_id: str) -> ApiError:
    """The same words for a draft that never was, and for another organisation's."""
    return NOT_FOUND(f"there is no draft `{draft_id[:60]}`", param="id")


def move(event: DraftEvent, draft_id: str) -> Update:
    """The statement that moves a draft to the state after `event`, if it is in a state in which that may happen."""
    sources, target = TRANSITIONS[event]
    return update(drafts).where(drafts.c.id == draft_id, drafts.c.state.in_(sources)).values(state=target)


def _locked(connection: Connection, org_id: int, draft_id: str) -> Draft:
    """An organisation's draft, which no other changes until the end of the transaction. Raises NOT_FOUND."""
    mine = (drafts.c.org_id == org_id, drafts.c.id == draft_id)
    row = connection.execute(select(drafts).where(*mine).with_for_update()).one_or_none()
    if row is None:
        raise unknown(draft_id)
    return draft_of(row)


def _bill(draft: Draft, cost_micro_eur: int, synthesis_ms: int) -> Bill:
    return Bill(draft.entry, Usage(cost_micro_eur, synthesis_ms, UNIT, {UNIT: synthesis_ms}))


def in_time(now_s: int) -> ColumnElement[bool]:
    """The condition that a draft has not expired."""
    return drafts.c.created_at > now_s - DRAFT_S


def claimed(claim: DraftClaim) -> Update:
    """The statement that changes a pending draft if its worker is still that of `claim`; None if it never had one."""
    worked_on = (drafts.c.id == claim.draft.id, drafts.c.state == "pending", drafts.c.worker == claim.worker)
    return update(drafts).where(*worked_on)


def changed(connection: Connection, change: Update) -> Draft | None:
    """The draft after `change`; None if that changed no row."""
    row: Row[Any] | None = connection.execute(change.returning(*drafts.c)).one_or_none()
    return None if row is None else draft_of(row)
