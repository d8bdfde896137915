import asyncio
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from sqlalchemy import func, select

from contract.access import Caller
from contract.errors import ApiError
from contract.limits import DRAFT_KEPT_S, DRAFT_S, KEPT_DRAFTS, OWN_VOICES, PENDING_DRAFTS
from contract.voice_design.draft import DRAFT_STATES, TRANSITIONS, DraftEvent, DraftState, VoiceSpec
from state import open_state
from state.blobs.base import Blobs, open_blobs
from state.database.base import Database, open_database
from state.database.tables import drafts, reservations
from state.drafts import Adoption, DesignedVoice, Draft, DraftClaim, Drafts
from state.drafts.store import DISCARDED_KEPT_S, FAILED_KEPT_S, LEASE_S, SWEEP_AGAIN_S, SWEPT_AT_ONCE
from state.voices import Voices
from tests.state.books import line_count, make_caller, money
from tests.state.servers import Postgres

pytestmark = pytest.mark.anyio

NOW_S = 1_800_000_000
HOLD = 60
COST = 15
NOBODY = "vd_" + "a" * 26

PLAN = VoiceSpec(
    gender="f",
    age_years=34,
    language="de",
    traits={"timbre": "warm"},
    speed=1.0,
    instruct="Ruhig, \"nah\" – 'ß'.",
    label="Änne",
    slug=None,
    target_hz=200,
    band_hz=(190.5, 210.5),
    auto_adopt=False,
    seed=7,
)
ADOPTION = Adoption("qwen", ("M1", "de-thorsten"))


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now_s = float(NOW_S)

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return open_blobs(tmp_path)


@pytest.fixture
def store(database: Database, blobs: Blobs, clock: Clock) -> Drafts:
    return Drafts(database, blobs, clock)


@pytest.fixture
async def caller(database: Database) -> Caller:
    return await make_caller(database, 1000)


async def refusal(work) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await work
    return caught.value


async def order(store: Drafts, caller: Caller, **plan: Any) -> Draft:
    return await store.order(
        caller, replace(PLAN, **plan), model="m", line="voice-design:m", estimate_micro_eur=HOLD, request_id="req-1"
    )


async def claimed(store: Drafts, caller: Caller, **plan: Any) -> DraftClaim:
    held = await store.claim((await order(store, caller, **plan)).id)
    assert held is not None
    return held


def made(held: DraftClaim) -> DesignedVoice:
    return DesignedVoice(
        clip_blob=f"{held.folder}/clip.wav",
        sample_blob=f"{held.folder}/sample.mp3",
        transcript="Guten Tag.",
        recipe="{}",
        runtime="kokoro-82m",
        f0_hz=200.5,
        p25_hz=190.0,
        p75_hz=210.0,
        voiced_windows=90,
        in_band=True,
        attempts_used=2,
        seconds=1.5,
        synthesis_ms=1500,
    )


async def finish(store: Drafts, held: DraftClaim, blobs: Blobs | None = None) -> Draft | None:
    what = made(held)
    for name in (what.clip_blob, what.sample_blob) if blobs else ():
        await blobs.put(name, name.encode())
    return await store.finish(held, what, COST)


async def ready(store: Drafts, caller: Caller, blobs: Blobs | None = None, **plan: Any) -> Draft:
    draft = await finish(store, await claimed(store, caller, **plan), blobs)
    assert draft is not None
    return draft


async def rows(database: Database) -> int:
    query = select(func.count()).select_from(drafts)
    return await database.run(lambda connection: connection.execute(query).scalar_one())


async def held_for(database: Database) -> list[int]:
    """Seconds for which money is held."""
    query = select(reservations.c.lease_until - reservations.c.created_at).where(reservations.c.state == "held")
    return await database.run(lambda connection: list(connection.execute(query).scalars()))


# --- orders ----------------------------------------------------------------------------------------------------------


async def test_a_draft_is_found_as_it_was_ordered(store: Drafts, caller: Caller) -> None:
    draft = await order(store, caller)
    assert re.fullmatch(r"vd_[a-z2-7]{26}", draft.id)
    assert (draft.state, draft.created_at, draft.expires_at) == ("pending", NOW_S, NOW_S + DRAFT_S)
    assert (draft.spec, draft.made, draft.cost_micro_eur) == (PLAN, None, 0)
    assert await store.find(caller.org_id, draft.id) == draft
    assert await store.of(caller.org_id) == [draft]
    assert (await order(store, caller)).id[:12] != draft.id[:12]


async def test_drafts_of_other_organisations_are_unknown_in_the_same_words(
    store: Drafts, database: Database, caller: Caller
) -> None:
    stranger = await make_caller(database, org="other")
    draft = await ready(store, caller)
    for ask in (store.find, store.discard, lambda org_id, name: store.adopt(org_id, name, ADOPTION)):
        errors = [
            await refusal(ask(stranger.org_id, name))
            for name in (draft.id, NOBODY, "", "x", draft.id + "\0", "\ud800", "vd_" + "Ä" * 26)
        ]
        assert {(error.fault.name, error.param) for error in errors} == {("NOT_FOUND", "id")}
        assert len({re.sub("`.*?`", "", error.message, flags=re.DOTALL) for error in errors}) == 1
    assert await store.of(stranger.org_id) == []
    assert await store.find(caller.org_id, draft.id) == draft


async def test_three_pending_drafts_and_not_one_more(
    store: Drafts, database: Database, caller: Caller, clock: Clock
) -> None:
    helds = [await claimed(store, caller) for _ in range(PENDING_DRAFTS)]
    error = await refusal(order(store, caller))
    assert (error.fault.status, error.fault.code) == (409, "too_many_pending")
    assert error.headers()["x-should-retry"] == "false"
    await order(store, await make_caller(database, org="other"))
    for free in (finish(store, helds[0]), store.discard(caller.org_id, helds[1].draft.id), store.fail(helds[2], "x")):
        await free
        await order(store, caller)
        assert (await refusal(order(store, caller))).fault.name == "TOO_MANY_PENDING"
    clock.now_s += DRAFT_S
    await order(store, caller)


async def test_so_many_ready_drafts_are_kept_and_no_more_can_be_ordered(store: Drafts, database: Database) -> None:
    """As many as a list shows: what is not in it could be neither adopted nor deleted."""
    caller = await make_caller(database)
    made = [await ready(store, caller) for _ in range(KEPT_DRAFTS - 1)]
    last = await claimed(store, caller)
    error = await refusal(order(store, caller))
    assert (error.fault.status, error.fault.code) == (409, "too_many_pending")
    assert f"{KEPT_DRAFTS} drafts" in error.message
    assert "adopt or delete" in error.message
    made.append(await finish(store, last))
    assert len(await store.of(caller.org_id)) == KEPT_DRAFTS
    assert (await refusal(order(store, caller))).fault.name == "TOO_MANY_PENDING"
    await order(store, await make_caller(database, org="other"))
    await store.adopt(caller.org_id, made[0].id, ADOPTION)
    await store.discard(caller.org_id, (await order(store, caller)).id)
    await store.fail(await claimed(store, caller), "x")
    await store.discard(caller.org_id, made[1].id)
    for _ in range(2):
        await order(store, caller)
    assert (await refusal(order(store, caller))).fault.name == "TOO_MANY_PENDING"


async def test_many_orders_at_once_never_pass_the_limit(store: Drafts, caller: Caller) -> None:
    answers = await asyncio.gather(*(order(store, caller) for _ in range(30)), return_exceptions=True)
    assert sum(isinstance(answer, Draft) for answer in answers) == PENDING_DRAFTS
    refused = {answer.fault.name for answer in answers if isinstance(answer, ApiError)}
    assert refused == {"TOO_MANY_PENDING"}
    assert len(await store.of(caller.org_id)) == PENDING_DRAFTS


async def test_many_replicas_share_the_limit_the_work_and_the_bill(postgres: Postgres, blobs: Blobs) -> None:
    url = postgres.empty()
    replicas = [await open_database(url) for _ in range(5)]
    stores = [Drafts(database, blobs, time.time) for database in replicas]
    caller = await make_caller(replicas[0], 10_000)
    for turn in range(3):
        answers = await asyncio.gather(*(order(s, caller) for s in stores for _ in range(3)), return_exceptions=True)
        (*drafts_made,) = [answer for answer in answers if isinstance(answer, Draft)]
        assert len(drafts_made) == PENDING_DRAFTS
        for draft in drafts_made:
            claims = await asyncio.gather(*(s.claim(draft.id) for s in stores))
            (held,) = [claim for claim in claims if claim]
            finished = await asyncio.gather(*(finish(s, held) for s in stores))
            assert sum(answer is not None for answer in finished) == 1
            adopted = await asyncio.gather(
                *(s.adopt(caller.org_id, draft.id, ADOPTION) for s in stores), return_exceptions=True
            )
            assert sum(isinstance(answer, tuple) for answer in adopted) == 1
        assert await line_count(replicas[0]) == PENDING_DRAFTS * (turn + 1)
        assert await money(replicas[0], caller) == (COST * PENDING_DRAFTS * (turn + 1), 0)
        assert len(await Voices(replicas[0]).of(caller.org_id)) == PENDING_DRAFTS * (turn + 1)
    for database in replicas:
        await database.close()


async def test_a_slug_of_a_voice_cannot_be_ordered(store: Drafts, caller: Caller) -> None:
    draft = await ready(store, caller, slug="our-anna")
    await order(store, caller, slug="our-anna")  # a draft does not reserve it
    await store.adopt(caller.org_id, draft.id, ADOPTION)
    error = await refusal(order(store, caller, slug="our-anna"))
    assert (error.fault.code, error.param) == ("voice_limit_reached", "slug")


# --- work ------------------------------------------------------------------------------------------------------------


async def test_of_many_claims_one_wins(store: Drafts, caller: Caller) -> None:
    draft = await order(store, caller)
    claims = await asyncio.gather(*(store.claim(draft.id) for _ in range(20)))
    assert sum(claim is not None for claim in claims) == 1


@pytest.mark.parametrize(("seconds", "free"), [(-1, False), (0, True), (1, True)])
async def test_a_lease_ends_to_the_second(
    store: Drafts, caller: Caller, clock: Clock, seconds: int, free: bool
) -> None:
    first = await claimed(store, caller)
    clock.now_s += LEASE_S + seconds
    assert await store.waiting(9) == ([first.draft.id] if free else [])
    assert store.waits(await store.find(caller.org_id, first.draft.id)) == free
    second = await store.claim(first.draft.id)
    assert (second is not None) == free


async def test_a_renewed_lease_does_not_end(store: Drafts, caller: Caller, clock: Clock) -> None:
    held = await claimed(store, caller)
    for _ in range(5):
        clock.now_s += LEASE_S - 1
        assert await store.renew(held)
        assert await store.claim(held.draft.id) is None


async def test_a_lease_that_is_given_back_is_free_at_once(store: Drafts, caller: Caller) -> None:
    held = await claimed(store, caller)
    await store.release(held)
    assert await store.claim(held.draft.id) is not None


async def test_a_worker_that_lost_its_draft_changes_nothing(
    store: Drafts, database: Database, caller: Caller, clock: Clock
) -> None:
    slow = await claimed(store, caller)
    clock.now_s += LEASE_S
    quick = await store.claim(slow.draft.id)
    assert quick is not None
    assert slow.folder != quick.folder
    assert not await store.renew(slow)
    assert await finish(store, slow) is None
    assert await store.count_failure(slow) == 0
    await store.fail(slow, "x")
    await store.release(slow)
    assert (await store.find(caller.org_id, slow.draft.id)).state == "pending"
    assert await store.claim(slow.draft.id) is None
    assert await store.renew(quick)
    assert await finish(store, quick) is not None
    assert await money(database, caller) == (COST, 0)


async def test_a_slow_worker_whom_nobody_replaced_may_finish(store: Drafts, caller: Caller, clock: Clock) -> None:
    held = await claimed(store, caller)
    clock.now_s += LEASE_S + 1
    assert await finish(store, held) is not None


async def test_failures_are_counted_whoever_works(store: Drafts, caller: Caller) -> None:
    first = await claimed(store, caller)
    assert await store.count_failure(first) == 1
    await store.release(first)
    second = await store.claim(first.draft.id)
    assert second is not None
    assert await store.count_failure(second) == 2


async def test_what_waits_longest_comes_first(store: Drafts, caller: Caller, clock: Clock) -> None:
    early, late = await claimed(store, caller), await claimed(store, caller)
    clock.now_s += 5
    await store.renew(early)
    clock.now_s += LEASE_S
    assert await store.waiting(9) == [late.draft.id, early.draft.id]
    assert await store.waiting(1) == [late.draft.id]
    fresh = await order(store, caller)
    assert (await store.waiting(9))[0] == fresh.id


async def test_a_ready_draft_waits_only_where_it_is_to_be_adopted(store: Drafts, caller: Caller) -> None:
    await ready(store, caller)
    assert await store.waiting(9) == []
    draft = await ready(store, caller, auto_adopt=True)
    assert await store.waiting(9) == [draft.id]
    assert await store.claim(draft.id) is None
    await store.refuse(draft.id, "no room")
    found = await store.find(caller.org_id, draft.id)
    assert (found.state, found.error, found.work_at) == ("ready", "no room", None)
    assert await store.waiting(9) == []


# --- money -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "fits"), [(HOLD - 1, False), (HOLD, True), (HOLD + 1, True)])
async def test_the_price_must_fit_into_the_limit(store: Drafts, database: Database, limit: int, fits: bool) -> None:
    caller = await make_caller(database, limit, org="small")
    if fits:
        await order(store, caller)
        assert await money(database, caller) == (0, HOLD)
    else:
        error = await refusal(order(store, caller))
        assert (error.fault.status, error.fault.code) == (402, "quota_exceeded")
        assert await store.of(caller.org_id) == []
        assert await money(database, caller) == (0, 0)


async def test_each_end_frees_what_was_held(store: Drafts, database: Database, caller: Caller, clock: Clock) -> None:
    await store.fail(await claimed(store, caller), "x")
    assert await money(database, caller) == (0, 0)
    await store.discard(caller.org_id, (await order(store, caller)).id)
    assert await money(database, caller) == (0, 0)
    await finish(store, await claimed(store, caller))
    assert await money(database, caller) == (COST, 0)
    await order(store, caller)
    clock.now_s += DRAFT_S
    await store.expire()
    assert await money(database, caller) == (COST, 0)
    assert await line_count(database) == 1


async def test_money_is_held_longer_than_a_draft_can_last(store: Drafts, database: Database, caller: Caller) -> None:
    await order(store, caller)
    (seconds,) = await held_for(database)
    assert seconds > DRAFT_S


async def test_without_a_limit_nothing_is_held_and_the_line_is_written(store: Drafts, database: Database) -> None:
    caller = await make_caller(database, org="free")
    held = await claimed(store, caller)
    assert await held_for(database) == []
    draft = await finish(store, held)
    assert draft is not None
    assert draft.cost_micro_eur == COST
    assert await line_count(database) == 1
    assert await money(database, caller) == (COST, 0)


async def test_a_bill_never_passes_the_limit(store: Drafts, database: Database) -> None:
    caller = await make_caller(database, HOLD + 5, org="small")
    held = await claimed(store, caller)
    draft = await store.finish(held, made(held), HOLD + 100)
    assert draft is not None
    assert draft.cost_micro_eur == HOLD + 5
    assert await money(database, caller) == (HOLD + 5, 0)


# --- ends ------------------------------------------------------------------------------------------------------------


async def in_state(store: Drafts, caller: Caller, state: str) -> Draft:
    match state:
        case "pending":
            return (await claimed(store, caller)).draft
        case "failed":
            held = await claimed(store, caller)
            await store.fail(held, "x")
            return held.draft
    draft = await ready(store, caller)
    if state == "adopted":
        await store.adopt(caller.org_id, draft.id, ADOPTION)
    if state == "discarded":
        await store.discard(caller.org_id, draft.id)
    return draft


@pytest.mark.parametrize("state", DRAFT_STATES)
async def test_every_state_meets_every_event(store: Drafts, caller: Caller, clock: Clock, state: DraftState) -> None:
    for event in get_args(DraftEvent):
        draft = await in_state(store, caller, state)
        await meet(store, caller, clock, draft, event)
        found = await store.read(draft.id)
        assert found is not None
        assert found.state == TRANSITIONS.get((state, event), state), event
        await store.discard(caller.org_id, draft.id)


async def meet(store: Drafts, caller: Caller, clock: Clock, draft: Draft, event: DraftEvent) -> None:
    """What happens to a draft."""
    held = DraftClaim(draft, await _worker(store, draft) or "nobody")
    match event:
        case "finish":
            await finish(store, held)
        case "fail":
            await store.fail(held, "x")
        case "expire":
            clock.now_s += DRAFT_S
            await store.expire()
        case "adopt":
            adopting = store.adopt(caller.org_id, draft.id, ADOPTION)
            is_ready = (await store.find(caller.org_id, draft.id)).state == "ready"
            assert is_ready or (await refusal(adopting)).fault.name == "INVALID_REQUEST"
            if is_ready:
                await adopting
        case "discard":
            await store.discard(caller.org_id, draft.id)


async def _worker(store: Drafts, draft: Draft) -> str | None:
    query = select(drafts.c.worker).where(drafts.c.id == draft.id)
    worker: str | None = await store._database.run(lambda connection: connection.execute(query).scalar_one())
    return worker


async def test_adoption_makes_the_voice_of_the_draft(
    store: Drafts, database: Database, blobs: Blobs, caller: Caller
) -> None:
    draft = await ready(store, caller)
    adopted, own = await store.adopt(caller.org_id, draft.id, ADOPTION)
    assert (adopted.state, adopted.voice_slug) == ("adopted", own.voice.slug)
    assert draft.made is not None
    assert (own.clip_blob, own.sample_blob) == (draft.made.clip_blob, draft.made.sample_blob)
    assert (own.recipe, own.runtime, own.transcript) == ("{}", "kokoro-82m", "Guten Tag.")
    voice = own.voice
    assert (voice.slug, voice.label, voice.gender, voice.age_group) == ("anne", "Änne", "f", "30-35")
    assert (voice.primary_language, voice.provider, voice.scope) == ("de", "qwen", "org")
    assert await Voices(database).find(caller.org_id, "anne") == own


async def test_slug_and_label_of_the_adoption_come_before_those_of_the_order(store: Drafts, caller: Caller) -> None:
    draft = await ready(store, caller, slug="ordered")
    wish = replace(ADOPTION, slug="wished", label="Bea")
    _, own = await store.adopt(caller.org_id, draft.id, wish)
    assert (own.voice.slug, own.voice.label) == ("wished", "Bea")


async def test_adoption_that_is_refused_changes_nothing(store: Drafts, database: Database, caller: Caller) -> None:
    for number in range(OWN_VOICES):
        await store.adopt(caller.org_id, (await ready(store, caller, slug=f"voice-{number}")).id, ADOPTION)
    draft = await ready(store, caller)
    for wish in (ADOPTION, replace(ADOPTION, slug="voice-3"), replace(ADOPTION, slug="m1")):
        error = await refusal(store.adopt(caller.org_id, draft.id, wish))
        assert error.fault.name == "VOICE_LIMIT_REACHED"
        assert await store.find(caller.org_id, draft.id) == draft
    assert (await refusal(store.adopt(caller.org_id, draft.id, replace(ADOPTION, slug="-")))).param == "slug"


async def test_of_many_adoptions_one_wins(store: Drafts, database: Database, blobs: Blobs, caller: Caller) -> None:
    draft = await ready(store, caller)
    wishes = [replace(ADOPTION, slug=f"voice-{number}") for number in range(10)]
    answers = await asyncio.gather(
        *(store.adopt(caller.org_id, draft.id, wish) for wish in wishes), return_exceptions=True
    )
    (won,) = [answer for answer in answers if isinstance(answer, tuple)]
    assert await Voices(database).of(caller.org_id) == [won[1]]


async def test_drafts_adopted_at_once_get_slugs_of_their_own(store: Drafts, caller: Caller) -> None:
    ids = [(await ready(store, caller)).id for _ in range(OWN_VOICES)]
    answers = await asyncio.gather(*(store.adopt(caller.org_id, name, ADOPTION) for name in ids))
    slugs = {own.voice.slug for _, own in answers}
    assert slugs == {"anne", *(f"anne-{number}" for number in range(2, OWN_VOICES + 1))}


async def test_adoption_and_discarding_at_once_leave_all_or_nothing(
    store: Drafts, database: Database, blobs: Blobs, caller: Caller
) -> None:
    for _ in range(10):
        draft = await ready(store, caller, blobs)
        await asyncio.gather(
            store.adopt(caller.org_id, draft.id, ADOPTION),
            store.discard(caller.org_id, draft.id),
            return_exceptions=True,
        )
        assert (await store.find(caller.org_id, draft.id)).state == "discarded"
        assert await Voices(database).of(caller.org_id) == []
        assert draft.made is not None
        assert not await blobs.exists(draft.made.clip_blob)


async def test_discarding_takes_bytes_and_voice_along(
    store: Drafts, database: Database, blobs: Blobs, caller: Caller
) -> None:
    gone, kept = [await ready(store, caller, blobs) for _ in range(2)]
    await store.adopt(caller.org_id, gone.id, ADOPTION)
    _, own = await store.adopt(caller.org_id, kept.id, ADOPTION)
    discarded = await store.discard(caller.org_id, gone.id)
    assert (discarded.state, discarded.voice_slug) == ("discarded", None)
    assert await Voices(database).of(caller.org_id) == [own]
    assert gone.made
    assert [await blobs.exists(name) for name in (gone.made.clip_blob, gone.made.sample_blob)] == [False, False]
    assert [await blobs.exists(name) for name in (own.clip_blob, own.sample_blob)] == [True, True]


@pytest.mark.parametrize(("seconds", "late"), [(-1, False), (0, True), (1, True)])
async def test_a_draft_expires_to_the_second(
    store: Drafts, caller: Caller, clock: Clock, seconds: int, late: bool
) -> None:
    asked, listed, housekept = [await claimed(store, caller) for _ in range(3)]
    clock.now_s += DRAFT_S + seconds
    await store.expire()
    states = [(await store.read(housekept.draft.id)).state]  # type: ignore[union-attr]
    states += [draft.state for draft in await store.of(caller.org_id) if draft.id == listed.draft.id]
    states += [(await store.find(caller.org_id, asked.draft.id)).state]
    assert set(states) == {"failed" if late else "pending"}
    if late:
        assert "20 minutes" in ((await store.find(caller.org_id, asked.draft.id)).error or "")
    assert ((await finish(store, asked)) is None) == late
    assert await store.renew(listed) == (not late)


async def test_a_draft_cannot_be_claimed_or_finished_once_it_is_late(
    store: Drafts, caller: Caller, clock: Clock
) -> None:
    held = await claimed(store, caller)
    clock.now_s += DRAFT_S
    assert await store.claim(held.draft.id) is None
    assert await finish(store, held) is None
    assert (await refusal(store.adopt(caller.org_id, held.draft.id, ADOPTION))).message.endswith("order a new one")


# --- what is left over -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "kept_s"),
    [("ready", DRAFT_KEPT_S), ("failed", FAILED_KEPT_S), ("discarded", DISCARDED_KEPT_S)],
)
async def test_rows_end_after_a_while(
    store: Drafts, database: Database, caller: Caller, clock: Clock, state: str, kept_s: int
) -> None:
    draft = await in_state(store, caller, state)
    clock.now_s += kept_s - 1
    for _ in range(2):
        await store.sweep()
    assert (await store.find(caller.org_id, draft.id)).state == state
    clock.now_s += 1
    await store.sweep()
    assert await rows(database) == 0
    assert (await refusal(store.find(caller.org_id, draft.id))).fault.name == "NOT_FOUND"


async def test_an_adopted_draft_is_never_swept(
    store: Drafts, database: Database, blobs: Blobs, caller: Caller, clock: Clock
) -> None:
    draft = await ready(store, caller, blobs)
    _, own = await store.adopt(caller.org_id, draft.id, ADOPTION)
    clock.now_s += 10 * DRAFT_KEPT_S
    await store.sweep()
    assert await blobs.exists(own.clip_blob)
    assert (await store.find(caller.org_id, draft.id)).state == "adopted"
    await store.discard(caller.org_id, draft.id)
    assert (await store.find(caller.org_id, draft.id)).state == "discarded"


async def test_sweep_deletes_what_a_dead_worker_stored(
    store: Drafts, blobs: Blobs, caller: Caller, clock: Clock
) -> None:
    held = await claimed(store, caller)
    left = f"{held.folder}/clip.wav"
    await blobs.put(left, b"sound")
    await store.sweep()
    assert await blobs.exists(left)
    clock.now_s += DRAFT_S
    await store.expire()
    await store.sweep()
    assert not await blobs.exists(left)


class BrokenBlobs:
    """A store in which some bytes cannot be deleted at the moment."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self.put = blobs.put
        self.broken: set[str] = set()

    async def delete_all(self, folder: str) -> None:
        if folder in self.broken:
            raise OSError
        await self._blobs.delete_all(folder)


async def test_bytes_that_cannot_be_deleted_keep_no_other_draft(
    database: Database, blobs: Blobs, caller: Caller, clock: Clock
) -> None:
    broken: Any = BrokenBlobs(blobs)
    store = Drafts(database, broken, clock)
    first, second = [await ready(store, caller, blobs) for _ in range(2)]
    broken.broken = {first.name, second.name}
    for draft in (first, second):
        assert (await store.discard(caller.org_id, draft.id)).state == "discarded"
    broken.broken = {first.name}
    clock.now_s += DRAFT_KEPT_S
    await store.sweep()
    assert first.made
    assert second.made
    assert [await blobs.exists(made.clip_blob) for made in (first.made, second.made)] == [True, False]
    assert await rows(database) == 1
    broken.broken = set()
    clock.now_s += SWEEP_AGAIN_S - 1
    await store.sweep()
    assert await rows(database) == 1
    clock.now_s += 1
    await store.sweep()
    assert await rows(database) == 0
    assert not await blobs.exists(first.made.clip_blob)


async def test_a_round_is_bounded(store: Drafts, database: Database, caller: Caller, clock: Clock) -> None:
    for _ in range(SWEPT_AT_ONCE + 1):
        await ready(store, caller)
    clock.now_s += DRAFT_KEPT_S
    await store.sweep()
    assert await rows(database) == 1


async def test_drafts_survive_closing(tmp_path: Path) -> None:
    first = await open_state(tmp_path)
    caller = await make_caller(first.database, 1000)
    draft, waiting = await ready(first.drafts, caller, first.blobs), await order(first.drafts, caller)
    await first.close()
    second = await open_state(tmp_path)
    assert {found.id for found in await second.drafts.of(caller.org_id)} == {draft.id, waiting.id}
    assert await second.drafts.find(caller.org_id, draft.id) == draft
    assert await second.drafts.waiting(9) == [waiting.id]
    await second.close()


@pytest.mark.parametrize(("cost", "left"), [(0, 0), (7, 7), (HOLD, HOLD)])
async def test_what_a_discarded_draft_has_cost_is_said_by_who_worked_on_it(
    store: Drafts, database: Database, caller: Caller, cost: int, left: int
) -> None:
    held = await claimed(store, caller)
    await store.settle_discarded(held.draft, 5, 5)
    assert await money(database, caller) == (0, HOLD), "it is not discarded"
    await store.discard(caller.org_id, held.draft.id)
    assert await money(database, caller) == (0, HOLD), "nobody else may spend it meanwhile"
    for _ in range(2):
        await store.settle_discarded(held.draft, cost, cost)
        assert await money(database, caller) == (left, 0)
        assert (await store.find(caller.org_id, held.draft.id)).cost_micro_eur == cost
    assert await line_count(database) == bool(cost)


@pytest.mark.parametrize(("passed_s", "still_held"), [(LEASE_S - 1, HOLD), (LEASE_S, 0)])
async def test_a_discarded_draft_that_nobody_works_on_frees_its_money(
    store: Drafts, database: Database, caller: Caller, clock: Clock, passed_s: int, still_held: int
) -> None:
    held = await claimed(store, caller)
    clock.now_s += passed_s
    await store.discard(caller.org_id, held.draft.id)
    assert await money(database, caller) == (0, still_held)


async def test_a_ready_draft_is_billed_once_though_it_is_discarded_at_the_same_time(
    store: Drafts, database: Database, caller: Caller
) -> None:
    held = await claimed(store, caller)
    await finish(store, held)
    await store.discard(caller.org_id, held.draft.id)
    await store.settle_discarded(held.draft, 7, 7)
    assert await money(database, caller) == (COST, 0)
    assert await line_count(database) == 1
