import asyncio
from pathlib import Path

import pytest

from contract.errors import ApiError
from contract.limits import OWN_VOICES
from contract.speech.voices import Voice
from state import open_state
from state.blobs.base import Blobs, open_blobs
from state.database.base import Database, open_database
from state.voices import OwnVoice, Voices, check_slug, own
from tests.state.books import make_caller
from tests.state.servers import Postgres

pytestmark = pytest.mark.anyio

PLATFORM = ("M1", "de-thorsten", "rooom-f-01")


def anna(slug: str = "our-anna", **about: object) -> Voice:
    known = {"provider": "qwen", "label": "Anna", "gender": "f", "age_group": "30-35", "primary_language": "de"}
    return own(slug=slug, **known | about)


async def add(store: Voices, org_id: int, slug: str = "our-anna", blobs: Blobs | None = None) -> OwnVoice:
    names = {"clip_blob": f"voices/{org_id}/{slug}.wav", "sample_blob": f"voices/{org_id}/{slug}.mp3"}
    for name in names.values() if blobs else ():
        await blobs.put(name, slug.encode())
    return await store.add(org_id, anna(slug), **names, transcript="Guten Tag.", taken=PLATFORM)


async def refusal(work) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await work
    return caught.value


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return open_blobs(tmp_path)


@pytest.fixture
def store(database: Database, blobs: Blobs) -> Voices:
    return Voices(database, blobs, lambda: 7.9)


@pytest.fixture
async def org_id(database: Database) -> int:
    return (await make_caller(database)).org_id


async def test_a_voice_is_found_as_it_was_added(store: Voices, org_id: int) -> None:
    assert await store.of(org_id) == []
    assert await store.find(org_id, "our-anna") is None
    about = anna(description="Ruhig, \"nah\" – 'ß'.")
    made = await store.add(
        org_id, about, clip_blob="c", sample_blob="s", transcript="Guten Tag, hier ist Anna.", taken=PLATFORM
    )
    assert made == OwnVoice(about, "c", "s", "Guten Tag, hier ist Anna.", 7)
    assert await store.find(org_id, "our-anna") == made
    assert await store.of(org_id) == [made]
    assert (made.voice.scope, made.voice.origin, made.voice.from_plan) == ("org", "designed", True)


async def test_voices_come_in_the_order_they_were_made(store: Voices, org_id: int) -> None:
    slugs = ["zoe", "anna", "m-3"]
    for slug in slugs:
        await add(store, org_id, slug)
    assert [made.voice.slug for made in await store.of(org_id)] == slugs


async def test_organisations_do_not_see_each_others_voices(store: Voices, database: Database, org_id: int) -> None:
    other = (await make_caller(database, org="other")).org_id
    await add(store, org_id)
    assert await store.find(other, "our-anna") is None
    assert await store.of(other) == []
    assert (await refusal(store.remove(other, "our-anna"))).fault.name == "NOT_FOUND"
    await add(store, other)
    await store.remove(other, "our-anna")
    assert await store.find(org_id, "our-anna") is not None


async def test_a_slug_is_taken_once(store: Voices, org_id: int) -> None:
    made = await add(store, org_id)
    error = await refusal(add(store, org_id))
    assert (error.fault.status, error.fault.code, error.param) == (409, "voice_limit_reached", "slug")
    assert error.headers()["x-should-retry"] == "false"
    assert await store.of(org_id) == [made]


async def test_a_slug_of_the_platform_is_taken(store: Voices, org_id: int) -> None:
    for slug in ("de-thorsten", "rooom-f-01", "m1", "default-de", "default-en"):
        assert (await refusal(add(store, org_id, slug))).fault.code == "voice_limit_reached"
    assert await store.of(org_id) == []


@pytest.mark.parametrize("slug", ["ab", "a1", "0-0", "a-b-c", "x" * 40])
def test_slugs(slug: str) -> None:
    check_slug(slug, PLATFORM)


@pytest.mark.parametrize(
    "slug", ["", "a", "A1", "-a", "a-", "a--b", "a_b", "a b", "ä1", "a/b", "../x", "a\n", "x" * 41]
)
def test_malformed_slugs(slug: str) -> None:
    with pytest.raises(ApiError) as caught:
        check_slug(slug, PLATFORM)
    assert (caught.value.fault.status, caught.value.fault.code) == (400, "invalid_request_error")
    assert caught.value.param == "slug"


async def test_ten_voices_and_not_one_more(store: Voices, org_id: int) -> None:
    for number in range(OWN_VOICES):
        await add(store, org_id, f"voice-{number}")
    error = await refusal(add(store, org_id, "one-more"))
    assert (error.fault.status, error.fault.code) == (409, "voice_limit_reached")
    assert error.headers()["x-should-retry"] == "false"
    assert "10" in error.message
    assert len(await store.of(org_id)) == OWN_VOICES
    await store.remove(org_id, "voice-3")
    await add(store, org_id, "one-more")
    assert (await refusal(add(store, org_id, "two-more"))).fault.code == "voice_limit_reached"


async def test_many_at_once_never_pass_the_limit(store: Voices, database: Database, org_id: int) -> None:
    other = (await make_caller(database, org="other")).org_id
    slugs = [f"voice-{number}" for number in range(30)]
    answers = await asyncio.gather(
        *(add(store, owner, slug) for slug in slugs for owner in (org_id, other)), return_exceptions=True
    )
    refused = [answer for answer in answers if isinstance(answer, ApiError)]
    assert {error.fault.name for error in refused} == {"VOICE_LIMIT_REACHED"}
    assert len(refused) == 40
    for owner in (org_id, other):
        assert len(await store.of(owner)) == OWN_VOICES


async def test_many_with_one_slug_give_one_voice(store: Voices, org_id: int) -> None:
    answers = await asyncio.gather(*(add(store, org_id) for _ in range(20)), return_exceptions=True)
    assert sum(isinstance(answer, OwnVoice) for answer in answers) == 1


async def test_many_replicas_share_one_limit(postgres: Postgres, blobs: Blobs) -> None:
    url = postgres.empty()
    replicas = [await open_database(url) for _ in range(6)]
    stores = [Voices(database, blobs) for database in replicas]
    org_id = (await make_caller(replicas[0])).org_id
    for number in range(OWN_VOICES - 1):
        await add(stores[0], org_id, f"voice-{number}")
    for turn in range(10):
        # All of them want the last place.
        slugs = [f"last-{turn}-{number}" for number in range(len(stores))]
        adding = (add(store, org_id, slug) for store, slug in zip(stores, slugs, strict=True))
        answers = await asyncio.gather(*adding, return_exceptions=True)
        (winner,) = [answer for answer in answers if isinstance(answer, OwnVoice)]
        assert len(await stores[0].of(org_id)) == OWN_VOICES
        await stores[0].remove(org_id, winner.voice.slug)
    for database in replicas:
        await database.close()


async def test_removing_takes_the_bytes_along(store: Voices, blobs: Blobs, org_id: int) -> None:
    gone, kept = await add(store, org_id, "gone", blobs), await add(store, org_id, "kept", blobs)
    await store.remove(org_id, "gone")
    assert await store.of(org_id) == [kept]
    assert [await blobs.exists(name) for name in (gone.clip_blob, gone.sample_blob)] == [False, False]
    assert [await blobs.exists(name) for name in (kept.clip_blob, kept.sample_blob)] == [True, True]
    assert (await refusal(store.remove(org_id, "gone"))).fault.status == 404
    await add(store, org_id, "gone", blobs)


class BrokenBlobs:
    """A store whose bytes cannot be deleted at the moment."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self.put = blobs.put
        self.broken = True

    async def delete(self, name: str) -> None:
        if self.broken:
            raise OSError
        await self._blobs.delete(name)


async def test_a_removal_that_broke_off_is_finished_later(database: Database, blobs: Blobs, org_id: int) -> None:
    broken = BrokenBlobs(blobs)
    store = Voices(database, broken)
    made = await add(store, org_id, blobs=blobs)
    with pytest.raises(OSError):  # noqa: PT011  # it has no message
        await store.remove(org_id, "our-anna")
    # Nobody sees the voice any more, though its bytes are still there.
    assert await store.of(org_id) == []
    assert await store.find(org_id, "our-anna") is None
    assert (await refusal(store.remove(org_id, "our-anna"))).fault.name == "NOT_FOUND"
    assert await blobs.exists(made.clip_blob)

    broken.broken = False
    await store.finish_removals()
    assert not await blobs.exists(made.clip_blob)
    assert not await blobs.exists(made.sample_blob)
    await add(store, org_id)
    await store.finish_removals()
    assert len(await store.of(org_id)) == 1


async def test_voices_survive_closing(tmp_path: Path) -> None:
    first = await open_state(tmp_path)
    org_id = (await make_caller(first.database)).org_id
    made = await add(first.voices, org_id, blobs=first.blobs)
    await first.close()
    second = await open_state(tmp_path)
    assert await second.voices.of(org_id) == [made]
    assert await second.blobs.find(made.clip_blob) == b"our-anna"
    await second.close()
