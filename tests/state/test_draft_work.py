"""Working on drafts: who has one, for how long, and which comes next."""

import asyncio

import pytest

from contract.limits import DRAFT_S
from state.drafts.store import LEASE_S
from tests.state.books import refusal
from tests.state.drafts import COST, Workshop


async def test_of_many_claims_one_wins(workshop: Workshop) -> None:
    draft = await workshop.order()
    claims = await asyncio.gather(*(workshop.store.claim(draft.id) for _ in range(20)))
    assert sum(claim is not None for claim in claims) == 1


@pytest.mark.parametrize(("seconds", "free"), [(-1, False), (0, True), (1, True)])
async def test_a_lease_ends_to_the_second(workshop: Workshop, seconds: int, free: bool) -> None:
    draft = (await workshop.claim()).draft
    workshop.clock.now_s += LEASE_S + seconds
    assert await workshop.store.waiting(9) == ([draft.id] if free else [])
    assert workshop.store.waits(await workshop.find(draft)) == free
    assert (await workshop.store.claim(draft.id) is not None) == free


async def test_a_renewed_lease_does_not_end(workshop: Workshop) -> None:
    claim = await workshop.claim()
    for _ in range(5):
        workshop.clock.now_s += LEASE_S - 1
        assert await workshop.store.renew(claim)
        assert await workshop.store.claim(claim.draft.id) is None


async def test_a_lease_that_is_given_back_is_free_at_once(workshop: Workshop) -> None:
    claim = await workshop.claim()
    await workshop.store.release(claim)
    assert await workshop.store.claim(claim.draft.id) is not None


async def test_a_worker_that_lost_its_draft_changes_nothing(workshop: Workshop) -> None:
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
    assert await workshop.finish(quick) is not None
    assert await workshop.money() == (COST, 0)


async def test_a_slow_worker_whom_nobody_replaced_may_finish(workshop: Workshop) -> None:
    claim = await workshop.claim()
    workshop.clock.now_s += LEASE_S + 1
    assert await workshop.finish(claim) is not None


async def test_failures_are_counted_whoever_works(workshop: Workshop) -> None:
    first = await workshop.claim()
    assert await workshop.store.count_failure(first) == 1
    await workshop.store.release(first)
    second = await workshop.store.claim(first.draft.id)
    assert second is not None
    assert await workshop.store.count_failure(second) == 2


async def test_what_waits_longest_comes_first(workshop: Workshop) -> None:
    early, late = await workshop.claim(), await workshop.claim()
    workshop.clock.now_s += 5
    await workshop.store.renew(early)
    workshop.clock.now_s += LEASE_S
    assert await workshop.store.waiting(9) == [late.draft.id, early.draft.id]
    assert await workshop.store.waiting(1) == [late.draft.id]
    fresh = await workshop.order()
    assert (await workshop.store.waiting(9))[0] == fresh.id


async def test_a_ready_draft_waits_only_where_it_is_to_be_adopted(workshop: Workshop) -> None:
    await workshop.ready()
    assert await workshop.store.waiting(9) == []
    draft = await workshop.ready(auto_adopt=True)
    assert await workshop.store.waiting(9) == [draft.id]
    assert await workshop.store.claim(draft.id) is None
    await workshop.store.refuse(draft.id, "no room")
    found = await workshop.find(draft)
    assert (found.state, found.error, found.work_at) == ("ready", "no room", None)
    assert await workshop.store.waiting(9) == []


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
    assert ((await workshop.finish(asked)) is None) == late
    assert await workshop.store.renew(listed) == (not late)


async def test_a_draft_cannot_be_claimed_or_finished_once_it_is_late(workshop: Workshop) -> None:
    claim = await workshop.claim()
    workshop.clock.now_s += DRAFT_S
    assert await workshop.store.claim(claim.draft.id) is None
    assert await workshop.finish(claim) is None
    assert (await refusal(workshop.adopt(claim.draft))).message.endswith("order a new one")
