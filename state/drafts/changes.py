"""Every change of a draft is one of these transactions.

    order                   a row, and the money held for it
    claim, renew, release   whose turn it is to work on it
    finish                  pending to ready, with the usage line
    fail, expire            pending to failed, and the money goes back
    adopt                   ready to adopted, with the voice
    discard                 anything to discarded; the voice goes too
    settle_discarded        what its designer had spent on it by then

The rowcount of one conditional update decides who moves a draft, as `contract.voice_design.draft` says from where.
Rows are locked in the order organisation, draft, then money or voice, so transactions cannot deadlock.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Update, delete, func, insert, select, update

from contract.errors import NOT_FOUND, TOO_MANY_PENDING, ApiError
from contract.limits import DRAFT_S, KEPT_DRAFTS, PENDING_DRAFTS
from contract.voice_design.draft import TRANSITIONS, DraftEvent, refuse_adoption, sources
from state.accounts import organisations
from state.billing import postings
from state.billing.usage import Bill, Usage
from state.database.tables import drafts
from state.drafts.draft import Adoption, DesignedVoice, Draft, columns, draft_of, voice_column
from state.voices import OwnVoice, delete_voice, insert_voice, slug_taken, slugs_in_use

UNIT = "synthesis_ms"
"""What usage lines of drafts count."""

_INTO = {event: state for (_, event), state in TRANSITIONS.items()}


def order(connection: Connection, draft: Draft, ends_at: int, hold_micro_eur: int, lease_s: int) -> None:
    """Adds the draft, and holds the money if there is a limit.

    Raises VOICE_LIMIT_REACHED if its slug is a voice's, TOO_MANY_PENDING, and OverLimit.
    """
    organisations.lock(connection, draft.org_id)
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
    connection.execute(insert(drafts).values(**columns(draft), ends_at=ends_at, sweep_at=ends_at))
    if hold_micro_eur:
        postings.reserve(connection, draft.entry, hold_micro_eur, lease_s)


def claim(connection: Connection, draft_id: str, worker: str, now_s: int, until: int) -> Draft | None:
    """Gives the work on a pending draft to `worker`; None if somebody has it, or there is none."""
    free = (drafts.c.id == draft_id, drafts.c.state == "pending", drafts.c.work_at <= now_s, _in_time(now_s))
    return _changed(connection, update(drafts).where(*free).values(worker=worker, work_at=until))


def renew(connection: Connection, draft_id: str, worker: str, now_s: int, until: int) -> bool:
    """Extends the lease. False if there is nothing left to do: discarded, expired, or somebody else's."""
    return bool(connection.execute(_claimed(draft_id, worker).where(_in_time(now_s)).values(work_at=until)).rowcount)


def release(connection: Connection, draft_id: str, worker: str) -> None:
    """Ends the lease, so that the next one can go on at once."""
    connection.execute(_claimed(draft_id, worker).values(work_at=0))


def count_failure(connection: Connection, draft_id: str, worker: str) -> int | None:
    """One more failure of the designer. Returns how many there are; None if the draft is somebody else's by now."""
    change = _claimed(draft_id, worker).values(failures=drafts.c.failures + 1).returning(drafts.c.failures)
    return connection.execute(change).scalar_one_or_none()


def finish(
    connection: Connection, draft_id: str, worker: str, voice: DesignedVoice, cost_micro_eur: int, now_s: int
) -> Draft | None:
    """The draft is ready and billed. None if it is not this worker's any more."""
    change = _move("finish", draft_id).where(drafts.c.worker == worker, _in_time(now_s))
    draft = _changed(connection, change.values(made=voice_column(voice), worker=None, work_at=None))
    if draft is None:
        return None
    (charged,) = postings.settle(connection, [_bill(draft, cost_micro_eur, voice.synthesis_ms)])
    work_at = 0 if draft.spec.auto_adopt else None
    after = update(drafts).where(drafts.c.id == draft_id).values(cost_micro_eur=charged, work_at=work_at)
    return _changed(connection, after)


def fail(connection: Connection, draft_id: str, worker: str, why: str, now_s: int, ends_at: int) -> bool:
    """The draft has failed, and what was held for it is free. False if it is not this worker's any more."""
    return _end(connection, _move("fail", draft_id).where(drafts.c.worker == worker), why, now_s, ends_at)


def expire(connection: Connection, draft_id: str, why: str, now_s: int, ends_at: int) -> bool:
    """The same for a draft that was not finished in time, whoever has it. False if it is not due, or has ended."""
    return _end(connection, _move("expire", draft_id).where(~_in_time(now_s)), why, now_s, ends_at)


def adopt(connection: Connection, org_id: int, draft_id: str, adoption: Adoption, now_s: int) -> tuple[Draft, OwnVoice]:
    """The draft and its voice. Raises NOT_FOUND, INVALID_REQUEST unless it is ready, VOICE_LIMIT_REACHED."""
    organisations.lock(connection, org_id)
    draft = _locked(connection, org_id, draft_id)
    refuse_adoption(draft.state)
    own = adoption.voice(draft, slugs_in_use(connection, org_id), now_s)
    insert_voice(connection, org_id, own)
    change = _move("adopt", draft_id).values(voice_slug=own.voice.slug, work_at=None, error=None, sweep_at=None)
    adopted = _changed(connection, change)
    assert adopted is not None, "the row is locked"
    return adopted, own


def refuse(connection: Connection, draft_id: str, why: str) -> None:
    """A ready draft is not adopted by itself: somebody has to decide."""
    ready = (drafts.c.id == draft_id, drafts.c.state == "ready")
    connection.execute(update(drafts).where(*ready).values(work_at=None, error=why))


def discard(connection: Connection, org_id: int, draft_id: str, now_s: int, ends_at: int) -> Draft:
    """The draft, discarded, as is its voice. Raises NOT_FOUND.

    What was held for it is free, unless somebody works on it: who does says first what that has cost.
    """
    before = _locked(connection, org_id, draft_id)
    change = _move("discard", draft_id).values(worker=None, work_at=None, voice_slug=None)
    after = _changed(connection, change.values(sweep_at=now_s, ends_at=ends_at))
    assert after is not None, "the row is locked"
    if before.state != "pending" or (before.work_at or 0) <= now_s:
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
    old = _move("discard", draft_id).where(drafts.c.sweep_at <= now_s, drafts.c.ends_at <= now_s)
    draft = _changed(connection, old.values(worker=None, work_at=None))
    if draft is not None:
        postings.void(connection, draft.entry)
    return draft is not None


def sweep_again(connection: Connection, draft_id: str, at: int) -> None:
    """The bytes of a draft are looked at again later."""
    swept = (drafts.c.id == draft_id, drafts.c.sweep_at.is_not(None))
    connection.execute(update(drafts).where(*swept).values(sweep_at=at))


def forget(connection: Connection, draft_id: str) -> None:
    """Deletes the row of a discarded draft."""
    connection.execute(delete(drafts).where(drafts.c.id == draft_id, drafts.c.state == "discarded"))


def waiting(connection: Connection, now_s: int, most: int) -> list[str]:
    """Ids of drafts that somebody should see to, those first that have waited longest."""
    due = select(drafts.c.id).where(drafts.c.work_at <= now_s).order_by(drafts.c.work_at, drafts.c.created_at)
    return list(connection.execute(due.limit(most)).scalars())


def overdue(connection: Connection, now_s: int, most: int) -> list[str]:
    """Ids of drafts that were not finished in time."""
    late = (drafts.c.work_at.is_not(None), drafts.c.state == "pending", ~_in_time(now_s))
    return list(connection.execute(select(drafts.c.id).where(*late).limit(most)).scalars())


def unknown(draft_id: str) -> ApiError:
    """The same words for a draft that never was, and for another organisation's."""
    return NOT_FOUND(f"there is no draft `{draft_id[:60]}`", param="id")


def _move(event: DraftEvent, draft_id: str) -> Update:
    from_state = (drafts.c.id == draft_id, drafts.c.state.in_(sources(event)))
    return update(drafts).where(*from_state).values(state=_INTO[event])


def _locked(connection: Connection, org_id: int, draft_id: str) -> Draft:
    """An organisation's draft, which nobody else changes until the end of the transaction. Raises NOT_FOUND."""
    mine = (drafts.c.org_id == org_id, drafts.c.id == draft_id)
    row = connection.execute(select(drafts).where(*mine).with_for_update()).one_or_none()
    if row is None:
        raise unknown(draft_id)
    return draft_of(row)


def _end(connection: Connection, change: Update, why: str, now_s: int, ends_at: int) -> bool:
    # What a worker may have stored is deleted from now on, the row later.
    draft = _changed(connection, change.values(error=why, worker=None, work_at=None, sweep_at=now_s, ends_at=ends_at))
    if draft is not None:
        postings.void(connection, draft.entry)
    return draft is not None


def _bill(draft: Draft, cost_micro_eur: int, synthesis_ms: int) -> Bill:
    return Bill(draft.entry, Usage(cost_micro_eur, synthesis_ms, UNIT, {UNIT: synthesis_ms}))


def _in_time(now_s: int) -> ColumnElement[bool]:
    return drafts.c.created_at > now_s - DRAFT_S


def _claimed(draft_id: str, worker: str) -> Update:
    return update(drafts).where(drafts.c.id == draft_id, drafts.c.state == "pending", drafts.c.worker == worker)


def _changed(connection: Connection, change: Update) -> Draft | None:
    row: Row[Any] | None = connection.execute(change.returning(*drafts.c)).one_or_none()
    return None if row is None else draft_of(row)
