import asyncio

import pytest

from contract.access import Caller
from contract.errors import ApiError
from contract.limits import OWN_VOICES
from contract.speech.voices import Voice
from state.database.base import Database
from state.voices import OwnVoice, Voices, delete_voice, own
from tests.state.books import make_caller, opened, refusal
from tests.state.drafts import add_voice

PLATFORM = ("M1", "de-thorsten", "rooom-f-01")


def anna(slug: str = "our-anna", **about: object) -> Voice:
    known = {"provider": "qwen", "label": "Anna", "gender": "f", "age_group": "30-35", "primary_language": "de"}
    return own(slug=slug, **known | about)


async def add(database: Database, org_id: int, slug: str = "our-anna") -> OwnVoice:
    names = {"clip_blob": f"voices/{org_id}/{slug}.wav", "sample_blob": f"voices/{org_id}/{slug}.mp3"}
    return await add_voice(database, org_id, anna(slug), **names, taken=PLATFORM)


async def remove(database: Database, org_id: int, slug: str) -> None:
    await database.run(lambda connection: delete_voice(connection, org_id, slug), row=org_id)


@pytest.fixture
def store(database: Database) -> Voices:
    return Voices(database)


@pytest.fixture
def org_id(caller: Caller) -> int:
    return caller.org_id


async def test_a_voice_is_found_as_it_was_added(store: Voices, database: Database, org_id: int) -> None:
    assert await store.of(org_id) == []
    assert await store.find(org_id, "our-anna") is None
    about = anna(description="Ruhig, \"nah\" – 'ß'.")
    made = await add_voice(
        database, org_id, about, clip_blob="c", sample_blob="s", transcript="Guten Tag, hier ist Anna."
    )
    assert made == OwnVoice(about, "c", "s", "Guten Tag, hier ist Anna.", 7)
    assert await store.find(org_id, "our-anna") == made
    assert await store.of(org_id) == [made]
    assert (made.voice.scope, made.voice.origin, made.voice.from_plan) == ("org", "designed", True)


async def test_a_name_that_no_voice_can_have_is_none(store: Voices, org_id: int) -> None:
    assert [await store.find(org_id, name) for name in ("a\0b", "\0", "a" * 41, "A", "")] == [None] * 5


async def test_voices_come_in_the_order_they_were_made(store: Voices, database: Database, org_id: int) -> None:
    slugs = ["zoe", "anna", "m-3"]
    for slug in slugs:
        await add(database, org_id, slug)
    assert [made.voice.slug for made in await store.of(org_id)] == slugs


async def test_organisations_do_not_see_each_others_voices(store: Voices, database: Database, org_id: int) -> None:
    other = (await make_caller(database, org="other")).org_id
    await add(database, org_id)
    assert await store.find(other, "our-anna") is None
    assert await store.of(other) == []
    await add(database, other)
    await remove(database, other, "our-anna")
    assert await store.find(org_id, "our-anna") is not None


async def test_a_slug_is_taken_once_and_by_the_platform(store: Voices, database: Database, org_id: int) -> None:
    made = await add(database, org_id)
    for slug in (made.voice.slug, "de-thorsten", "rooom-f-01", "m1", "default-de", "default-en"):
        error = await refusal(add(database, org_id, slug))
        assert (error.fault.status, error.fault.code, error.param) == (409, "voice_limit_reached", "slug")
        assert error.headers()["x-should-retry"] == "false"
    assert await store.of(org_id) == [made]


async def test_ten_voices_and_not_one_more(store: Voices, database: Database, org_id: int) -> None:
    for number in range(OWN_VOICES):
        await add(database, org_id, f"voice-{number}")
    error = await refusal(add(database, org_id, "one-more"))
    assert (error.fault.status, error.fault.code) == (409, "voice_limit_reached")
    assert error.headers()["x-should-retry"] == "false"
    assert "10" in error.message
    assert len(await store.of(org_id)) == OWN_VOICES
    await remove(database, org_id, "voice-3")
    await add(database, org_id, "one-more")
    assert (await refusal(add(database, org_id, "two-more"))).fault.code == "voice_limit_reached"


async def test_many_replicas_share_one_limit(postgres_url: str) -> None:
    async with opened(postgres_url, 6) as replicas:
        voices = Voices(replicas[0])
        org_id = (await make_caller(replicas[0])).org_id
        for number in range(OWN_VOICES - 1):
            await add(replicas[0], org_id, f"voice-{number}")
        for turn in range(10):
            # All of them want the last place.
            adding = (add(database, org_id, f"last-{turn}-{number}") for number, database in enumerate(replicas))
            answers = await asyncio.gather(*adding, return_exceptions=True)
            (winner,) = [answer for answer in answers if isinstance(answer, OwnVoice)]
            refused = [answer.fault.name for answer in answers if isinstance(answer, ApiError)]
            assert refused == ["VOICE_LIMIT_REACHED"] * (len(replicas) - 1)
            assert len(await voices.of(org_id)) == OWN_VOICES
            await remove(replicas[0], org_id, winner.voice.slug)
        other = (await make_caller(replicas[0], org="other")).org_id
        once = (add(database, other, "our-anna") for database in replicas)
        answers = await asyncio.gather(*once, return_exceptions=True)
        assert sum(isinstance(answer, OwnVoice) for answer in answers) == 1, "many with one slug give one voice"
