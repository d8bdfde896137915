"""Drafts that become voices: at once, again after a lost answer, and several at a time."""

import asyncio

from contract.errors import STATE_UNAVAILABLE
from contract.limits import OWN_VOICES
from state.drafts import Drafts
from state.voices import Voices
from tests.state.books import fault_of, refusal
from tests.state.doubles import ForgetfulDatabase
from tests.state.drafts import Workshop


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
    assert (voice.origin, voice.from_plan) == ("designed", True)
    assert await Voices(workshop.database).find(workshop.caller.org_id, "anne") == own


async def test_an_adoption_whose_answer_was_lost_has_succeeded_and_that_of_another_has_not(workshop: Workshop) -> None:
    lossy = ForgetfulDatabase(workshop.database)
    workshop.store = Drafts(lossy, workshop.blobs, workshop.clock)
    for slug in (None, "chosen"):
        draft, lossy.names = await workshop.ready(), ["adopt"]
        answer = await workshop.adopt(draft, slug=slug)
        assert answer == (await workshop.find(draft), (await workshop.voices())[-1])
    workshop.clock.now_s += 1
    for slug in (None, "chosen"):
        failures = [STATE_UNAVAILABLE()]
        lossy.fault = lambda work: failures.pop() if failures and "adopt" in str(work) else None  # noqa: B023
        assert await fault_of(workshop.adopt(draft, slug=slug)) == "INVALID_REQUEST"


async def test_adoption_that_is_refused_changes_nothing(workshop: Workshop) -> None:
    for number in range(OWN_VOICES):
        await workshop.adopt(await workshop.ready(slug=f"voice-{number}"))
    draft = await workshop.ready()
    refusals = {None: f"has {OWN_VOICES} voices", "voice-3": "`voice-3` is in use", "m1": "`m1` is in use"}
    for slug, says in refusals.items():
        error = await refusal(workshop.adopt(draft, slug=slug))
        assert (error.fault.status, error.fault.code) == (409, "voice_limit_reached")
        assert error.headers()["x-should-retry"] == "false"
        assert says in error.message
        assert await workshop.find(draft) == draft
    assert (await refusal(workshop.adopt(draft, slug="-"))).param == "slug"


async def test_drafts_adopted_at_once_get_slugs_of_their_own(workshop: Workshop) -> None:
    ready = [await workshop.ready() for _ in range(OWN_VOICES)]
    answers = await asyncio.gather(*(workshop.adopt(draft) for draft in ready))
    slugs = {own.voice.slug for _, own in answers}
    assert slugs == {"anne", *(f"anne-{number}" for number in range(2, OWN_VOICES + 1))}
