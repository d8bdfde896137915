"""Ends of drafts: adopted, discarded, too late, and what is left over."""

import asyncio
from dataclasses import replace
from typing import Any, get_args

import pytest
from sqlalchemy import select

from contract.limits import DRAFT_KEPT_S, DRAFT_S, OWN_VOICES
from contract.voice_design.draft import DRAFT_STATES, TRANSITIONS, DraftEvent, DraftState
from state.database.tables import drafts
from state.drafts import Draft, DraftClaim
from state.drafts.store import DISCARDED_KEPT_S, FAILED_KEPT_S, SWEEP_AGAIN_S, SWEPT_AT_ONCE
from state.voices import Voices
from tests.state.books import fault_of, refusal
from tests.state.doubles import BrokenBlobs
from tests.state.drafts import Workshop


@pytest.mark.parametrize("state", DRAFT_STATES)
async def test_every_state_meets_every_event(workshop: Workshop, state: DraftState) -> None:
    for event in get_args(DraftEvent):
        draft = await workshop.in_state(state)
        await meet(workshop, draft, event)
        found = await workshop.store.read(draft.id)
        assert found is not None
        sources, target = TRANSITIONS[event]
        assert found.state == (target if state in sources else state), event
        await workshop.discard(draft)


async def meet(workshop: Workshop, draft: Draft, event: DraftEvent) -> None:
    query = select(drafts.c.worker).where(drafts.c.id == draft.id)
    worker: str | None = await workshop.database.run(lambda connection: connection.execute(query).scalar_one())
    claim = DraftClaim(draft, worker or "nobody")
    match event:
        case "finish":
            await workshop.finish(claim)
        case "fail":
            await workshop.store.fail(claim, "x")
        case "expire":
            workshop.clock.now_s += DRAFT_S
            await workshop.store.expire()
        case "adopt" if (await workshop.find(draft)).state == "ready":
            await workshop.adopt(draft)
        case "adopt":
            assert await fault_of(workshop.adopt(draft)) == "INVALID_REQUEST"
        case "discard":
            await workshop.discard(draft)


async def test_adoption_makes_the_voice_of_the_draft(workshop: Workshop) -> None:
    draft = await workshop.ready()
    adopted, own = await workshop.adopt(draft)
    assert (adopted.state, adopted.voice_slug) == ("adopted", own.voice.slug)
    assert draft.designed is not None
    assert (own.clip_blob, own.sample_blob) == (draft.designed.clip_blob, draft.designed.sample_blob)
    assert (own.recipe, own.runtime, own.transcript) == ("{}", "kokoro-82m", "Guten Tag.")
    voice = own.voice
    assert (voice.slug, voice.label, voice.gender, voice.age_group) == ("anne", "Änne", "f", "30-35")
    assert (voice.primary_language, voice.provider, voice.scope) == ("de", "qwen", "org")
    assert await Voices(workshop.database).find(workshop.caller.org_id, "anne") == own


async def test_slug_and_label_of_the_adoption_come_before_those_of_the_order(workshop: Workshop) -> None:
    _, own = await workshop.adopt(await workshop.ready(slug="ordered"), slug="wished", label="Bea")
    assert (own.voice.slug, own.voice.label) == ("wished", "Bea")


async def test_a_round_is_bounded(workshop: Workshop) -> None:
    for _ in range(SWEPT_AT_ONCE + 1):
        await workshop.ready()
    workshop.clock.now_s += DRAFT_KEPT_S
    await workshop.store.sweep()
    assert await workshop.rows() == 1


async def test_adoption_that_is_refused_changes_nothing(workshop: Workshop) -> None:
    for number in range(OWN_VOICES):
        await workshop.adopt(await workshop.ready(slug=f"voice-{number}"))
    draft = await workshop.ready()
    for slug in (None, "voice-3", "m1"):
        assert await fault_of(workshop.adopt(draft, slug=slug)) == "VOICE_LIMIT_REACHED"
        assert await workshop.find(draft) == draft
    assert (await refusal(workshop.adopt(draft, slug="-"))).param == "slug"


async def test_drafts_adopted_at_once_get_slugs_of_their_own(workshop: Workshop) -> None:
    ready = [await workshop.ready() for _ in range(OWN_VOICES)]
    answers = await asyncio.gather(*(workshop.adopt(draft) for draft in ready))
    slugs = {own.voice.slug for _, own in answers}
    assert slugs == {"anne", *(f"anne-{number}" for number in range(2, OWN_VOICES + 1))}


async def test_adoption_and_discarding_at_once_leave_all_or_nothing(workshop: Workshop) -> None:
    for _ in range(10):
        draft = await workshop.ready(has_bytes=True)
        await asyncio.gather(workshop.adopt(draft), workshop.discard(draft), return_exceptions=True)
        assert (await workshop.find(draft)).state == "discarded"
        assert await workshop.voices() == []
        assert not any(await workshop.has_bytes(draft))


@pytest.mark.parametrize(
    ("state", "kept_s"), [("ready", DRAFT_KEPT_S), ("failed", FAILED_KEPT_S), ("discarded", DISCARDED_KEPT_S)]
)
async def test_rows_end_after_a_while(workshop: Workshop, state: str, kept_s: int) -> None:
    draft = await workshop.in_state(state)
    workshop.clock.now_s += kept_s - 1
    for _ in range(2):
        await workshop.store.sweep()
    assert (await workshop.find(draft)).state == state
    workshop.clock.now_s += 1
    await workshop.store.sweep()
    assert await workshop.rows() == 0
    assert await fault_of(workshop.find(draft)) == "NOT_FOUND"


async def test_an_adopted_draft_is_never_swept(workshop: Workshop) -> None:
    draft = await workshop.ready(has_bytes=True)
    await workshop.adopt(draft)
    workshop.clock.now_s += 10 * DRAFT_KEPT_S
    await workshop.store.sweep()
    assert all(await workshop.has_bytes(draft))
    assert (await workshop.find(draft)).state == "adopted"
    await workshop.discard(draft)
    assert (await workshop.find(draft)).state == "discarded"


async def test_sweep_deletes_what_a_dead_worker_stored(workshop: Workshop) -> None:
    left = f"{(await workshop.claim()).folder}/clip.wav"
    await workshop.blobs.put(left, b"sound")
    await workshop.store.sweep()
    assert await workshop.blobs.exists(left)
    workshop.clock.now_s += DRAFT_S
    await workshop.store.expire()
    await workshop.store.sweep()
    assert not await workshop.blobs.exists(left)


async def test_bytes_that_cannot_be_deleted_keep_no_other_draft(workshop: Workshop) -> None:
    broken: Any = BrokenBlobs(workshop.blobs)
    failing = replace(workshop, blobs=broken)
    first, second = [await workshop.ready(has_bytes=True) for _ in range(2)]
    broken.broken = {first.name, second.name}
    for draft in (first, second):
        assert (await failing.discard(draft)).state == "discarded"
    broken.broken = {first.name}
    workshop.clock.now_s += DRAFT_KEPT_S
    await failing.store.sweep()
    assert await workshop.has_bytes(first) == [True, True]
    assert await workshop.has_bytes(second) == [False, False]
    assert await workshop.rows() == 1
    broken.broken = set()
    workshop.clock.now_s += SWEEP_AGAIN_S - 1
    await failing.store.sweep()
    assert await workshop.rows() == 1
    workshop.clock.now_s += 1
    await failing.store.sweep()
    assert await workshop.rows() == 0
    assert await workshop.has_bytes(first) == [False, False]
