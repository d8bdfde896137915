"""Drafts: limits of orders, money that is held and billed, the work on them, and their ends.

Histories of two processes: `test_draft_processes.py`.
"""

import asyncio
import re
import time
from dataclasses import replace
from typing import Any, get_args

import pytest

from contract.errors import ApiError
from contract.limits import DRAFT_KEPT_S, DRAFT_S, KEPT_DRAFTS, OWN_VOICES, PENDING_DRAFTS
from contract.voice_design.draft import DRAFT_STATES, TRANSITIONS, DraftEvent, DraftState
from state.blobs.base import Blobs
from state.database.base import Database
from state.drafts import Draft, Drafts
from state.drafts.store import LEASE_S, SWEEP_AGAIN_S, SWEPT_AT_ONCE
from state.voices import Voices
from tests.state.books import fault_of, line_count, make_caller, opened, refusal
from tests.state.doubles import BrokenBlobs, ForgetfulDatabase
from tests.state.drafts import ADOPTION, COST, HOLD, PLAN, Workshop, made

NOBODY = "vd_" + "a" * 26


async def test_a_draft_is_found_as_it_was_ordered(workshop: Workshop) -> None:
    draft, now_s = await workshop.order(), workshop.clock.now_s
    assert re.fullmatch(r"vd_[a-z2-7]{26}", draft.id)
    assert (draft.state, draft.created_at, draft.expires_at) == ("pending", now_s, now_s + DRAFT_S)
    assert (draft.spec, draft.designed, draft.cost_micro_eur) == (PLAN, None, 0)
    assert await workshop.find(draft) == draft
    assert await workshop.list() == [draft]
    assert (await workshop.order()).id[:12] != draft.id[:12]


async def test_work_on_an_order_begins_once_its_client_is_sure_to_get_the_id(workshop: Workshop) -> None:
    forgetful = ForgetfulDatabase(workshop.database, "order", "order", "_changed")
    ends_now, workshop.store = workshop.store, Drafts(forgetful, workshop.blobs, workshop.clock)
    workshop.store.spawn = lambda work: work.close()  # as where the process ends before it discards the draft
    assert await fault_of(workshop.order()) == "STATE_UNAVAILABLE"
    assert await workshop.rows() == 1
    assert await ends_now.waiting(9) == []
    (lost,) = await workshop.list()
    assert await ends_now.claim(lost.id) is None
    assert (await workshop.money())[1] == HOLD
    await ends_now.discard(workshop.caller.org_id, lost.id)
    assert (await workshop.money())[1] == 0
    draft = await workshop.order()  # its process does not hear that work may begin
    assert await ends_now.waiting(9) == [draft.id]
    assert await workshop.find(draft) == draft


async def test_drafts_of_other_organisations_are_unknown_in_the_same_words(workshop: Workshop) -> None:
    stranger, store = await workshop.of_another(), workshop.store
    draft = await workshop.ready()
    for ask in (store.find, store.discard, lambda org_id, name: store.adopt(org_id, name, ADOPTION)):
        errors = [
            await refusal(ask(stranger.caller.org_id, name))
            for name in (draft.id, NOBODY, "", "x", draft.id + "\0", "\ud800", "vd_" + "Ä" * 26)
        ]
        assert {(error.fault.name, error.param) for error in errors} == {("NOT_FOUND", "id")}
        assert len({re.sub("`.*?`", "", error.message, flags=re.DOTALL) for error in errors}) == 1
    assert await stranger.list() == []
    assert await workshop.find(draft) == draft


async def test_three_pending_drafts_and_not_one_more(workshop: Workshop) -> None:
    claims = [await workshop.claim() for _ in range(PENDING_DRAFTS)]
    error = await refusal(workshop.order())
    assert (error.fault.status, error.fault.code) == (409, "too_many_pending")
    assert error.headers()["x-should-retry"] == "false"
    await (await workshop.of_another()).order()
    ends = (workshop.finish(claims[0]), workshop.discard(claims[1].draft), workshop.store.fail(claims[2], "x"))
    for end in ends:
        await end
        await workshop.order()
        assert await fault_of(workshop.order()) == "TOO_MANY_PENDING"
    workshop.clock.now_s += DRAFT_S
    await workshop.order()


async def test_so_many_ready_drafts_are_kept_and_no_more_can_be_ordered(workshop: Workshop) -> None:
    """As many as a list shows: what is not in it could be neither adopted nor deleted."""
    free = await workshop.of_another()
    kept = [await free.ready() for _ in range(KEPT_DRAFTS - 1)]
    last = await free.claim()
    message = (await refusal(free.order())).message
    assert f"{KEPT_DRAFTS} drafts" in message
    assert "adopt or delete" in message
    await free.finish(last)
    assert len(await free.list()) == KEPT_DRAFTS
    assert await fault_of(free.order()) == "TOO_MANY_PENDING"
    await workshop.order()
    await free.adopt(kept[0])
    await free.discard(await free.order())
    await free.store.fail(await free.claim(), "x")
    await free.discard(kept[1])
    for _ in range(2):
        await free.order()
    assert await fault_of(free.order()) == "TOO_MANY_PENDING"


async def test_many_processes_share_limit_work_and_bill(database: Database, database_url: str, blobs: Blobs) -> None:
    async with opened(database_url, 5) as replicas:
        caller = await make_caller(replicas[0], 10_000)
        workshops = [Workshop(database, blobs, caller) for database in replicas]
        for each in workshops:
            each.store = Drafts(each.database, blobs, time.time)
        first = workshops[0]
        for turn in range(1, 4):
            orders = (each.order() for each in workshops for _ in range(3))
            answers = await asyncio.gather(*orders, return_exceptions=True)
            ordered = [answer for answer in answers if isinstance(answer, Draft)]
            assert len(ordered) == PENDING_DRAFTS
            assert {answer.fault.name for answer in answers if isinstance(answer, ApiError)} == {"TOO_MANY_PENDING"}
            for draft in ordered:
                claims = await asyncio.gather(*(each.store.claim(draft.id) for each in workshops))
                (claim,) = [claim for claim in claims if claim]
                finished = await asyncio.gather(*(each.finish(claim) for each in workshops))
                assert sum(answer is not None for answer in finished) == 1
                adopted = await asyncio.gather(*(each.adopt(draft) for each in workshops), return_exceptions=True)
                assert sum(isinstance(answer, tuple) for answer in adopted) == 1
            assert await line_count(first.database) == PENDING_DRAFTS * turn
            assert await first.money() == (COST * PENDING_DRAFTS * turn, 0)
            assert len(await first.voices()) == PENDING_DRAFTS * turn


@pytest.mark.parametrize(("limit", "fits"), [(HOLD - 1, False), (HOLD, True), (HOLD + 1, True), (None, True)])
async def test_the_price_must_fit_into_the_limit_and_is_held_longer_than_a_draft_can_last(
    workshop: Workshop, limit: int | None, fits: bool
) -> None:
    small = await workshop.of_another(limit)
    if not fits:
        error = await refusal(small.order())
        assert (error.fault.status, error.fault.code) == (402, "quota_exceeded")
        assert (await small.list(), await small.money()) == ([], (0, 0))
        return
    claim = await small.claim()
    assert await small.money() == (0, HOLD if limit else 0)
    assert [seconds > DRAFT_S for seconds in await small.held_s()] == [True] * bool(limit)
    draft = await small.finish(claim)
    assert draft is not None
    assert draft.cost_micro_eur == COST
    assert await line_count(small.database) == 1
    assert await small.money() == (COST, 0)


async def test_a_bill_never_passes_the_limit(workshop: Workshop) -> None:
    small = await workshop.of_another(HOLD + 5)
    claim = await small.claim()
    draft = await small.store.finish(claim, made(claim), HOLD + 100)
    assert draft is not None
    assert draft.cost_micro_eur == HOLD + 5
    assert await small.money() == (HOLD + 5, 0)


async def test_the_cost_of_a_discarded_draft_is_reported_by_its_worker(workshop: Workshop) -> None:
    for cost in (0, 7, HOLD):
        shop = await workshop.of_another(1000, f"org-{cost}")
        claim, lines = await shop.claim(), await line_count(shop.database)
        await shop.store.settle_discarded(claim.draft, 5, 5)
        assert await shop.money() == (0, HOLD), "it is not discarded"
        await shop.discard(claim.draft)
        assert await shop.money() == (0, HOLD), "no other may spend it meanwhile"
        for _ in range(2):
            await shop.store.settle_discarded(claim.draft, cost, cost)
            assert await shop.money() == (cost, 0)
            assert (await shop.find(claim.draft)).cost_micro_eur == cost
        assert await line_count(shop.database) - lines == bool(cost)


@pytest.mark.parametrize(("passed_s", "still_held"), [(LEASE_S - 1, HOLD), (LEASE_S, 0)])
async def test_a_discarded_draft_without_worker_frees_money(workshop: Workshop, passed_s: int, still_held: int) -> None:
    claim = await workshop.claim()
    workshop.clock.now_s += passed_s
    await workshop.discard(claim.draft)
    assert await workshop.money() == (0, still_held)


@pytest.mark.parametrize(("seconds", "free"), [(-1, False), (0, True), (1, True)])
async def test_a_lease_ends_to_the_second(workshop: Workshop, seconds: int, free: bool) -> None:
    draft = (await workshop.claim()).draft
    workshop.clock.now_s += LEASE_S + seconds
    assert await workshop.store.waiting(9) == ([draft.id] if free else [])
    assert workshop.store.waits(await workshop.find(draft)) == free
    assert (await workshop.store.claim(draft.id) is not None) == free
    slow = await workshop.claim()
    workshop.clock.now_s += LEASE_S + seconds
    assert await workshop.finish(slow) is not None, "nobody has taken its place"


async def test_a_lost_worker_changes_nothing_and_failures_are_counted_whoever_works(workshop: Workshop) -> None:
    store, slow = workshop.store, await workshop.claim()
    workshop.clock.now_s += LEASE_S
    quick = await store.claim(slow.draft.id)
    assert quick is not None
    assert slow.folder != quick.folder
    assert not await store.renew(slow)
    assert await workshop.finish(slow) is None
    assert await store.count_failure(slow) == 0
    await store.fail(slow, "x")
    await store.release(slow)
    assert (await workshop.find(slow.draft)).state == "pending"
    assert await store.claim(slow.draft.id) is None
    assert await store.renew(quick)
    assert await store.count_failure(quick) == 1
    await store.release(quick)
    third = await store.claim(slow.draft.id)
    assert third is not None
    assert await store.count_failure(third) == 2
    assert await workshop.finish(third) is not None
    assert await workshop.money() == (COST, 0)


async def test_what_waits_longest_comes_first(workshop: Workshop) -> None:
    early, late = await workshop.claim(), await workshop.claim()
    workshop.clock.now_s += 5
    await workshop.store.renew(early)
    workshop.clock.now_s += LEASE_S
    assert await workshop.store.waiting(9) == [late.draft.id, early.draft.id]
    assert await workshop.store.waiting(1) == [late.draft.id]
    fresh = await workshop.order()
    assert (await workshop.store.waiting(9))[0] == fresh.id


@pytest.mark.parametrize(("seconds", "late"), [(-1, False), (0, True), (1, True)])
async def test_a_draft_expires_to_the_second(workshop: Workshop, seconds: int, late: bool) -> None:
    asked, listed, housekept = [await workshop.claim() for _ in range(3)]
    workshop.clock.now_s += DRAFT_S + seconds
    await workshop.store.expire()
    states = [(await workshop.store.read(housekept.draft.id)).state]  # type: ignore[union-attr]
    states += [draft.state for draft in await workshop.list() if draft.id == listed.draft.id]
    states += [(await workshop.find(asked.draft)).state]
    assert set(states) == {"failed" if late else "pending"}
    if late:
        assert "20 minutes" in ((await workshop.find(asked.draft)).error or "")
        assert await workshop.store.claim(asked.draft.id) is None
        assert (await refusal(workshop.adopt(asked.draft))).message.endswith("order a new one")
    assert ((await workshop.finish(asked)) is None) == late
    assert await workshop.store.renew(listed) == (not late)


@pytest.mark.parametrize("state", DRAFT_STATES)
async def test_every_state_meets_every_event(workshop: Workshop, state: DraftState) -> None:
    for event in get_args(DraftEvent):
        draft = await workshop.in_state(state)
        await workshop.meet(draft, event)
        found = await workshop.store.read(draft.id)
        assert found is not None
        sources, target = TRANSITIONS[event]
        assert found.state == (target if state in sources else state), event
        await workshop.discard(draft)


async def test_a_round_is_bounded(workshop: Workshop) -> None:
    for _ in range(SWEPT_AT_ONCE + 1):
        await workshop.ready()
    workshop.clock.now_s += DRAFT_KEPT_S
    await workshop.store.sweep()
    assert await workshop.rows() == 1


async def test_voices_are_those_of_their_organisation_in_the_order_they_were_made(workshop: Workshop) -> None:
    find, stranger, slugs = Voices(workshop.database).find, await workshop.of_another(), ["zoe", "anna", "m-3"]
    assert (await workshop.voices(), await stranger.voices()) == ([], [])
    for slug in slugs:
        await workshop.adopt(await workshop.ready(slug=slug))
    assert [own.voice.slug for own in await workshop.voices()] == slugs
    assert (await find(stranger.caller.org_id, "anna"), await stranger.voices()) == (None, [])
    theirs = await stranger.ready(slug="anna")
    await stranger.adopt(theirs)
    await stranger.discard(theirs)
    mine = [await find(workshop.caller.org_id, name) for name in ("anna", "a\0b", "\0", "a" * 41, "A", "")]
    assert [own is not None for own in mine] == [True] + [False] * 5


async def test_many_replicas_share_one_limit_of_voices(postgres_url: str, blobs: Blobs) -> None:
    async with opened(postgres_url, 6) as replicas:

        async def adopted_at_once(ready: list[Draft], slug: str) -> tuple[Draft, list[str]]:
            """The draft that has become a voice, and the faults of the others."""
            adopting = (
                each.adopt(draft, slug=slug.format(draft.id[3:])) for each, draft in zip(shops, ready, strict=True)
            )
            answers = await asyncio.gather(*adopting, return_exceptions=True)
            ((draft, _),) = [answer for answer in answers if isinstance(answer, tuple)]
            return draft, [answer.fault.name for answer in answers if isinstance(answer, ApiError)]

        for org, slug, turns in (("acme", "last-{}", 10), ("other", "anna", 1)):
            caller = await make_caller(replicas[0], org=org)
            shops = [Workshop(database, blobs, caller) for database in replicas]
            for number in range(OWN_VOICES - 1 if turns > 1 else 0):
                await shops[0].adopt(await shops[0].ready(slug=f"voice-{number}"))
            for _ in range(turns):
                # All of them want the last place, or one slug.
                draft, refused = await adopted_at_once([await shops[0].ready() for _ in shops], slug)
                assert refused == ["VOICE_LIMIT_REACHED"] * (len(shops) - 1)
                assert len(await shops[0].voices()) == (OWN_VOICES if turns > 1 else 1)
                await shops[0].discard(draft)


@pytest.mark.parametrize(("state", "kept_s"), [("ready", 30 * 24 * 3600), ("failed", 24 * 3600), ("discarded", 3600)])
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
