"""Voice design over the real app: every error, the states of a draft, money, organisations, races."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import json
import time
import wave
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from autoscaling.engine import owner_name
from contract.access import Scope
from contract.errors import BUSY, WARMING_UP
from contract.limits import DRAFT_S, INSTRUCT_CHARS, KEPT_DRAFTS, OWN_VOICES, PENDING_DRAFTS, VOICE_LABEL_CHARS
from contract.voice_design.draft import DRAFT_STATES
from deployments.ingress import draft_worker
from deployments.ingress.app import build_app
from deployments.ingress.draft_worker import TRIES, DraftWorker
from state.drafts import Drafts
from state.drafts.store import LEASE_S
from tests.api.conftest import Api
from tests.engines import ObedientDesigner
from tests.state.books import eventually, pass_time

pytestmark = pytest.mark.anyio

DESIGNS = "/v1/audio/voices/designs"
OPTIONS = "/v1/audio/voices/design-options"
ORDER = {"gender": "f", "age_years": 34, "language": "en"}
NOBODY = "vd_" + "a" * 26
COST_MICRO_EUR = 1500
"""Of a voice of the obedient designer."""
HELD_MICRO_EUR = 60_000
"""Before it is made."""


def designer(api: Api) -> ObedientDesigner:
    engine: Any = api.service.engines["voice-design-qwen3-tts"]
    adapter: ObedientDesigner = engine.adapter
    return adapter


async def order(
    api: Api, key: str | None = None, headers: dict[str, str] | None = None, **fields: Any
) -> httpx.Response:
    return await api.send("POST", DESIGNS, key, json=ORDER | fields, headers=headers or {})


async def ordered(api: Api, key: str | None = None, **fields: Any) -> dict[str, Any]:
    """A draft as it was answered when it was ordered."""
    reply = await order(api, key, **fields)
    assert reply.status_code == 202, reply.text
    body: dict[str, Any] = reply.json()
    return body


async def poll(api: Api, draft: dict[str, Any], key: str | None = None) -> dict[str, Any]:
    reply = await api.send("GET", f"{DESIGNS}/{draft['id']}", key)
    assert reply.status_code == 200, reply.text
    body: dict[str, Any] = reply.json()
    return body


async def until(api: Api, draft: dict[str, Any], *statuses: str) -> dict[str, Any]:
    """The draft once it has one of `statuses`; nobody polls it until then."""

    async def arrived() -> bool:
        found = await api.state.drafts.read(draft["id"])
        return found is not None and found.state in statuses

    await eventually(arrived)
    return await poll(api, draft)


async def made(api: Api, **fields: Any) -> dict[str, Any]:
    """A draft that is ready."""
    return await until(api, await ordered(api, **fields), "ready", "failed")


async def adopt(api: Api, draft: dict[str, Any], key: str | None = None, **fields: Any) -> httpx.Response:
    body = {"json": fields} if fields else {}
    return await api.send("POST", f"{DESIGNS}/{draft['id']}/adopt", key, **body)


async def discard(api: Api, draft: dict[str, Any], key: str | None = None) -> httpx.Response:
    return await api.send("DELETE", f"{DESIGNS}/{draft['id']}", key)


def refused(reply: httpx.Response, status: int, code: str, param: str | None = None) -> str:
    error = reply.json()["error"]
    assert (reply.status_code, error["code"]) == (status, code), reply.text
    if param:
        assert error["param"] == param
    message: str = error["message"]
    return message


async def stored(api: Api) -> list[str]:
    """Names of all bytes of drafts."""
    folder = api.state.blobs._folder  # type: ignore[attr-defined]
    return sorted(str(path.relative_to(folder)) for path in folder.glob("drafts/**/*") if path.is_file())


async def until_designed(api: Api) -> None:
    """Returns once the designer is at work."""

    async def under_way() -> bool:
        return designer(api).under_way == 1

    await eventually(under_way)


@pytest.fixture
async def held(api: Api) -> AsyncIterator[dict[str, Any]]:
    """A draft whose designer waits until it is told to go on."""
    draft = await ordered(api, instruct="hold")
    await until_designed(api)
    yield draft
    designer(api).go.set()


# --- the way of a draft ----------------------------------------------------------------------------------------------


async def test_202_a_draft_is_pending_and_empty(api: Api, held: dict[str, Any]) -> None:
    assert held["id"].startswith("vd_")
    assert (held["object"], held["status"], held["scope"]) == ("voice_design", "pending", "org")
    assert (held["gender"], held["age_years"], held["language"], held["auto_adopt"]) == ("f", 34, "en", False)
    assert held["measurements"] == {"f0_hz": None, "in_band": None, "attempts_used": None, "seconds": None}
    assert (held["sample_url"], held["voice_slug"], held["voice"], held["error"]) == (None, None, None, None)
    assert (held["cost_micro_eur"], held["instruct"]) == (0, "hold")
    assert "duration_ms" not in held
    assert await poll(api, held) == held


async def test_a_poll_of_a_finished_draft_is_ready_with_all_that_was_measured(api: Api) -> None:
    draft = await made(api, target_hz=200)
    assert (draft["status"], draft["target_hz"], draft["error"]) == ("ready", 200, None)
    assert draft["measurements"] == {
        "f0_hz": 200.0, "in_band": True, "attempts_used": 1, "seconds": 2.0, "p25_hz": 195.0, "p75_hz": 205.0,
        "voiced_windows": 90
    }  # fmt: skip
    low, high = draft["band_hz"]
    assert low < 200 < high
    assert (draft["duration_ms"], draft["cost_micro_eur"]) == (1500, COST_MICRO_EUR)
    assert (draft["voice_slug"], draft["voice"]) == (None, None)
    sample = await api.client.get(draft["sample_url"])
    assert (sample.status_code, sample.headers["content-type"]) == (200, "audio/mpeg")
    assert "sample" in sample.json()


async def test_the_designer_serves_organisations_in_turn(api: Api) -> None:
    engine: Any = api.service.engines["voice-design-qwen3-tts"]
    draft = await made(api)
    held = await api.state.drafts.read(draft["id"])
    assert held is not None
    assert engine.callers == [owner_name(held.org_id)]


async def test_the_designer_gets_the_plan_and_the_sample_sentence(api: Api) -> None:
    draft = await made(api, language="de", target_hz=180)
    (job,) = designer(api).jobs
    assert job.text == api.service.catalog.sentences["de"]
    assert (job.gender, job.age_years, job.language, job.target_hz) == ("f", 34, "de", 180)
    assert (job.instruct, job.traits, list(job.band_hz)) == (draft["instruct"], draft["traits"], draft["band_hz"])
    assert job.attempts == api.service.catalog.voice_design["qwen3-tts"].max_attempts


@pytest.mark.parametrize("target_hz", [60, 400])
async def test_a_draft_out_of_band_is_ready_and_says_so(api: Api, target_hz: int) -> None:
    draft = await made(api, instruct="far", target_hz=target_hz)
    assert (draft["status"], draft["measurements"]["in_band"]) == ("ready", False)
    assert draft["measurements"]["attempts_used"] > 1
    assert (await adopt(api, draft)).status_code == 200


async def test_an_adopted_draft_is_a_voice_at_once(api: Api) -> None:
    draft = await made(api)
    reply = await adopt(api, draft, slug="our-anna", label="Anna")
    voice = reply.json()
    assert reply.status_code == 200
    assert (voice["slug"], voice["label"], voice["scope"], voice["origin"]) == ("our-anna", "Anna", "org", "designed")
    assert (voice["gender"], voice["age_group"], voice["primary_language"]) == ("f", "30-35", "en")
    assert (voice["provider"], voice["model"], voice["description"]) == ("qwen", "qwen3-tts", draft["instruct"])
    listed = (await api.send("GET", "/v1/audio/voices")).json()["data"][-1]
    assert {**listed, "sample_url": ""} == {**voice, "sample_url": ""}
    after = await poll(api, draft)
    assert (after["status"], after["voice_slug"], after["voice"]["slug"]) == ("adopted", "our-anna", "our-anna")
    assert (await api.client.get(voice["sample_url"])).json() == (await api.client.get(draft["sample_url"])).json()


async def spoken(api: Api, slug: str) -> dict[str, Any]:
    """What the engine was asked for a text in this voice."""
    reply = await api.send("POST", "/v1/audio/speech", json={"input": "hello", "voice": slug})
    assert (reply.status_code, reply.headers["x-voice"]) == (200, slug)
    about: dict[str, Any] = json.loads(reply.content.split(b"\n")[0])
    return about


async def test_what_designed_a_voice_speaks_it_by_its_recipe(api: Api) -> None:
    await adopt(api, await made(api), slug="our-anna")
    about = await spoken(api, "our-anna")
    assert about["recipe"] == json.dumps({"seed": designer(api).jobs[0].seed})
    assert (about["voice"], about["clip"]) == (None, None)


async def test_another_engine_imitates_its_clip(api: Api) -> None:
    await adopt(api, await made(api, instruct="clip"), slug="by-clip")
    await adopt(api, await made(api), slug="by-recipe")
    sentence = api.service.catalog.sentences["en"]
    about = await spoken(api, "by-clip")
    assert (about["voice"], about["clip"]) == (None, [96_000, 24_000, sentence])
    assert "recipe" not in about
    # The same voice after another runtime took the engine's place.
    model = api.service.catalog.speech["qwen3-tts"]
    assert model.serving
    vars(model)["serving"] = model.serving.model_copy(update={"runtime": "another"})
    about = await spoken(api, "by-recipe")
    assert about["clip"] == [96_000, 24_000, sentence]
    assert "recipe" not in about


async def test_the_clip_is_a_wav_file(api: Api) -> None:
    await made(api)
    clip, sample = await stored(api)
    assert (clip.rpartition("/")[2], sample.rpartition("/")[2]) == ("clip.wav", "sample.mp3")
    data = await api.state.blobs.find(clip)
    assert data is not None
    with wave.open(io.BytesIO(data)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth(), file.getnframes()) == (
            24_000,
            1,
            2,
            48_000,
        )


async def test_drafts_are_listed_newest_first_and_for_their_organisation_only(api: Api) -> None:
    await api.organisation("other")
    stranger = await api.key(*Scope, org="other")
    ids = [(await made(api))["id"] for _ in range(3)]
    listed = (await api.send("GET", DESIGNS)).json()
    assert listed["object"] == "list"
    assert {draft["id"] for draft in listed["data"]} == set(ids)
    moments = [draft["created_at"] for draft in listed["data"]]
    assert moments == sorted(moments, reverse=True)
    assert (await api.send("GET", DESIGNS, stranger)).json()["data"] == []
    assert KEPT_DRAFTS == 100


async def test_auto_adopt_completes_without_a_poll(api: Api) -> None:
    draft = await ordered(api, auto_adopt=True, slug="our-anna")
    assert draft["auto_adopt"] is True

    async def there() -> bool:
        return await api.state.voices.find(1, "our-anna") is not None

    await eventually(there)
    after = await poll(api, draft)
    assert (after["status"], after["voice"]["slug"]) == ("adopted", "our-anna")


async def test_auto_adopt_completes_with_polls(api: Api) -> None:
    draft = await ordered(api, auto_adopt=True)

    async def adopted() -> bool:
        return (await poll(api, draft))["status"] == "adopted"

    await eventually(adopted)


async def test_auto_adopt_that_is_refused_leaves_the_draft_ready_and_says_why(api: Api, held: dict[str, Any]) -> None:
    mine = await ordered(api, auto_adopt=True, slug="our-anna", instruct="hold")
    await adopt(api, await made(api), slug="our-anna")
    designer(api).go.set()

    async def told() -> bool:
        return bool((await poll(api, mine))["error"])

    await eventually(told)
    draft = await poll(api, mine)
    assert (draft["status"], draft["voice"]) == ("ready", None)
    assert "`our-anna` is in use" in draft["error"]
    reply = await adopt(api, draft, slug="our-bea")
    assert reply.status_code == 200
    assert (await poll(api, draft))["error"] is None


async def test_a_voice_without_a_slug_gets_one_of_its_label(api: Api) -> None:
    for label, slug in (("Jürgen, groß!", "jurgen-gross"), ("Jürgen groß", "jurgen-gross-2"), ("Анна", "voice-f-34")):
        assert (await adopt(api, await made(api, label=label))).json()["slug"] == slug


# --- state by event over HTTP ----------------------------------------------------------------------------------------


@asynccontextmanager
async def draft_in(api: Api, state: str) -> AsyncIterator[dict[str, Any]]:
    """A draft in any state."""
    if state == "pending":
        yield await ordered(api, instruct="hold")
        designer(api).go.set()
        return
    draft = await made(api, instruct="fail" if state == "failed" else "a voice")
    if state == "adopted":
        assert (await adopt(api, draft)).status_code == 200
    if state == "discarded":
        assert (await discard(api, draft)).status_code == 200
    found = await poll(api, draft)
    assert found["status"] == state
    yield found


@pytest.mark.parametrize("status", DRAFT_STATES)
async def test_only_a_ready_draft_can_be_adopted(api: Api, status: str) -> None:
    async with draft_in(api, status) as draft:
        before = len(await api.state.voices.of(1))
        reply = await adopt(api, draft)
        if status == "ready":
            assert reply.status_code == 200
        else:
            refused(reply, 400, "invalid_request_error")
            assert (await poll(api, draft))["status"] == status
            assert len(await api.state.voices.of(1)) == before


@pytest.mark.parametrize("status", DRAFT_STATES)
async def test_a_draft_in_any_state_can_be_discarded(api: Api, status: str) -> None:
    async with draft_in(api, status) as draft:
        for _ in range(2):
            reply = await discard(api, draft)
            assert (reply.status_code, reply.json()["status"]) == (200, "discarded")
        after = await poll(api, draft)
        assert (after["status"], after["sample_url"], after["voice"]) == ("discarded", None, None)
        assert await api.state.voices.of(1) == []
        assert await stored(api) == []


async def test_discarding_ends_the_work_and_frees_the_place(api: Api, held: dict[str, Any]) -> None:
    await discard(api, held)

    async def left() -> bool:
        return designer(api).under_way == 0

    await eventually(left)
    assert (await poll(api, held))["status"] == "discarded"
    for _ in range(PENDING_DRAFTS):
        await ordered(api, instruct="hold")


async def test_discarding_bills_the_time_that_the_designer_had_spent(api: Api) -> None:
    await api.limit(HELD_MICRO_EUR)
    draft = await ordered(api, instruct="hold")
    await until_designed(api)
    reply = (await discard(api, draft)).json()
    (line,) = await api.usage()
    assert line.quantities == {"synthesis_ms": line.quantity}
    assert 0 < reply["cost_micro_eur"] == line.cost_micro_eur == line.quantity < HELD_MICRO_EUR
    me = (await api.send("GET", "/v1/me")).json()["spend"]["organisation"]
    assert (me["spent_micro_eur"], me["held_micro_eur"]) == (line.cost_micro_eur, 0)
    assert (await discard(api, draft)).json()["cost_micro_eur"] == line.cost_micro_eur
    assert len(await api.usage()) == 1


async def test_discarding_what_no_designer_has_begun_costs_nothing(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft_worker, "AT_ONCE", 0)
    await api.limit(HELD_MICRO_EUR)
    assert (await discard(api, await ordered(api))).json()["cost_micro_eur"] == 0
    me = (await api.send("GET", "/v1/me")).json()["spend"]["organisation"]
    assert (await api.usage(), me["held_micro_eur"]) == ([], 0)


async def test_discarding_what_a_designer_fails_at_costs_nothing(api: Api) -> None:
    api.service.drafts.pause_s = 60
    draft = await ordered(api, instruct="fail")

    async def has_failed() -> bool:
        found = await api.state.drafts.read(draft["id"])
        return found is not None and found.failures == 1

    await eventually(has_failed)
    await discard(api, draft)
    assert await api.usage() == []


async def test_what_a_designer_made_of_a_discarded_draft_is_thrown_away_and_billed(
    api: Api, held: dict[str, Any]
) -> None:
    # Discarded by another process, whose word this one has not heard yet.
    await api.state.drafts.discard(1, held["id"])
    designer(api).go.set()

    async def done() -> bool:
        return not api.service.drafts._working

    await eventually(done)
    (line,) = await api.usage()
    after = await poll(api, held)
    assert (after["status"], after["cost_micro_eur"]) == ("discarded", line.cost_micro_eur)
    assert (await stored(api), line.unit) == ([], "synthesis_ms")


async def test_discarding_an_adopted_draft_frees_its_slug_at_once(api: Api) -> None:
    first = await made(api)
    await adopt(api, first, slug="our-anna")
    await discard(api, first)
    assert (await api.send("POST", "/v1/audio/speech", json={"input": "x", "voice": "our-anna"})).status_code == 400
    assert (await adopt(api, await made(api), slug="our-anna")).status_code == 200


# --- errors ----------------------------------------------------------------------------------------------------------


async def test_400_an_unknown_trait_names_the_allowed_ones(api: Api) -> None:
    for axis, traits in (await api.send("GET", OPTIONS)).json()["traits"].items():
        message = refused(await order(api, **{axis: "loud-as-thunder"}), 400, "invalid_request_error", axis)
        assert all(trait["id"] in message for trait in traits)
    assert designer(api).jobs == []


@pytest.mark.parametrize(("age", "status"), [(15, 400), (16, 202), (90, 202), (91, 400)])
async def test_400_an_age_outside_16_to_90(api: Api, age: int, status: int) -> None:
    assert (await order(api, age_years=age)).status_code == status


async def test_400_both_ages_and_neither(api: Api) -> None:
    group = (await api.send("GET", OPTIONS)).json()["age_groups"][0]["id"]
    refused(await order(api, age_group=group), 400, "invalid_request_error", "age_years")
    refused(await order(api, age_years=None), 400, "invalid_request_error", "age_years")
    assert (await order(api, age_years=None, age_group=group)).status_code == 202


@pytest.mark.parametrize(("target_hz", "status"), [(59, 400), (60, 202), (400, 202), (401, 400)])
async def test_400_a_pitch_outside_60_to_400(api: Api, target_hz: int, status: int) -> None:
    assert (await order(api, target_hz=target_hz)).status_code == status


@pytest.mark.parametrize(("chars", "status"), [(INSTRUCT_CHARS, 202), (INSTRUCT_CHARS + 1, 400)])
async def test_400_a_description_that_is_too_long(api: Api, chars: int, status: int) -> None:
    assert (await order(api, instruct="x" * chars)).status_code == status


@pytest.mark.parametrize("slug", ["", "a", "A1", "-a", "a_b", "../x", "a\n", "x" * 41, "ä1"])
async def test_400_a_malformed_slug_at_order_and_adoption(api: Api, slug: str) -> None:
    refused(await order(api, slug=slug), 400, "invalid_request_error", "slug")
    draft = await made(api)
    refused(await adopt(api, draft, slug=slug), 400, "invalid_request_error", "slug")
    assert (await poll(api, draft))["status"] == "ready"


@pytest.mark.parametrize(
    "fields",
    [
        {"gender": "x"}, {"gender": None}, {"age_years": "34"}, {"age_years": 34.5}, {"language": "xx"},
        {"language": "nl"}, {"label": "x" * (VOICE_LABEL_CHARS + 1)}, {"label": "a\0b"}, {"auto_adopt": "yes"},
        {"timber": "deep"}, {"instruct": "a\0b"}, {"free_text": "x" * 501}, {"target_hz": "200"}, {"traits": {}},
    ],
)  # fmt: skip
async def test_400_what_an_order_may_not_hold(api: Api, fields: dict[str, Any]) -> None:
    refused(await order(api, **fields), 400, "invalid_request_error")
    assert (await api.send("GET", DESIGNS)).json()["data"] == []


async def test_402_quota_exceeded_of_the_organisation_and_of_the_user(api: Api) -> None:
    key = await api.key(*Scope, user="eve")
    await api.limit(HELD_MICRO_EUR - 1, user="eve")
    assert "`eve`" in refused(await order(api, key), 402, "quota_exceeded")
    await api.limit(HELD_MICRO_EUR, user="eve")
    await api.limit(HELD_MICRO_EUR - 1)
    assert "`acme`" in refused(await order(api, key), 402, "quota_exceeded")
    await api.limit(HELD_MICRO_EUR)
    assert (await order(api, key)).status_code == 202


async def test_403_a_plan_without_voices(api: Api) -> None:
    await api.organisation("small", "free")
    key = await api.key(*Scope, org="small")
    refused(await order(api, key), 403, "voice_not_in_plan")
    refused(await api.send("POST", f"{DESIGNS}/suggest", key, json={"text": "deep"}), 403, "voice_not_in_plan")
    # What is there can be seen.
    assert (await api.send("GET", DESIGNS, key)).json()["data"] == []
    assert (await api.send("GET", OPTIONS, key)).status_code == 200


async def test_403_an_organisation_whose_plan_has_become_smaller_may_look_and_discard(api: Api) -> None:
    from state.accounts import organisations

    draft = await made(api)
    await api.state.database.run(lambda c: organisations.change(c, "acme", {"plan": "free"}))
    key = await api.key(*Scope)
    refused(await adopt(api, draft, key), 403, "voice_not_in_plan")
    assert (await poll(api, draft, key))["status"] == "ready"
    assert (await discard(api, draft, key)).status_code == 200


async def test_403_without_the_scope(api: Api) -> None:
    key = await api.key(*(set(Scope) - {Scope.SPEECH}))
    refused(await order(api, key), 403, "missing_scope")
    assert (await api.send("GET", OPTIONS, key)).status_code == 200


async def test_409_a_slug_that_is_taken(api: Api) -> None:
    await adopt(api, await made(api), slug="our-anna")
    second = await made(api)
    for slug in ("our-anna", "m1", "de-thorsten", "default-de"):
        for reply in (await order(api, slug=slug), await adopt(api, second, slug=slug)):
            refused(reply, 409, "voice_limit_reached", "slug")
            assert reply.headers["x-should-retry"] == "false"
    assert (await poll(api, second))["status"] == "ready"


async def test_409_the_eleventh_voice(api: Api) -> None:
    for number in range(OWN_VOICES):
        last = await made(api)
        assert (await adopt(api, last, slug=f"voice-{number}")).status_code == 200
    one_more = await made(api)
    assert "10" in refused(await adopt(api, one_more), 409, "voice_limit_reached")
    await discard(api, last)
    assert (await adopt(api, one_more)).status_code == 200


async def test_409_the_fourth_draft_at_a_time(api: Api) -> None:
    await api.organisation("other")
    drafts = [await ordered(api, instruct="hold") for _ in range(PENDING_DRAFTS)]
    reply = await order(api)
    refused(reply, 409, "too_many_pending")
    assert reply.headers["x-should-retry"] == "false"
    assert (await order(api, await api.key(*Scope, org="other"))).status_code == 202
    await discard(api, drafts[0])
    assert (await order(api)).status_code == 202


async def test_409_of_many_orders_at_once_three_are_taken(api: Api) -> None:
    replies = await asyncio.gather(*(order(api, instruct="hold") for _ in range(20)))
    assert sorted(reply.status_code for reply in replies) == [202] * PENDING_DRAFTS + [409] * 17


async def test_501_where_no_designer_is_set_up(api: Api) -> None:
    model = api.service.catalog.voice_design["qwen3-tts"].model_copy(update={"serving": None})
    catalog = api.service.catalog.model_copy(update={"voice_design": {model.id: model}})
    app = build_app(dataclasses.replace(api.service, catalog=catalog))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as api.client:
        options = (await api.send("GET", OPTIONS)).json()
        assert (options["available"], options["limits"]["concurrent_drafts"]) == (False, PENDING_DRAFTS)
        reply = await order(api)
        refused(reply, 501, "not_implemented")
        assert reply.headers["x-should-retry"] == "false"
        refused(await order(api, timbre="unknown"), 400, "invalid_request_error")


async def test_501_where_the_organisation_may_not_use_the_designer(api: Api) -> None:
    from state.accounts import organisations

    assert (await api.send("GET", OPTIONS)).json()["available"] is True
    await api.state.database.run(lambda c: organisations.change(c, "acme", {"models": frozenset({"lengths"})}))
    key = await api.key(*Scope)
    assert (await api.send("GET", OPTIONS, key)).json()["available"] is False
    refused(await order(api, key), 501, "not_implemented")


async def test_502_a_designer_whose_start_has_failed(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    engine: Any = api.service.engines["voice-design-qwen3-tts"]
    monkeypatch.setattr(engine, "is_failing", lambda: True)
    refused(await order(api), 502, "upstream_error")
    assert engine.warmed == 1
    assert (await api.send("GET", DESIGNS)).json()["data"] == []


@pytest.mark.parametrize("event", ["GET", "DELETE", "adopt"])
async def test_404_foreign_ids_and_unknown_ones_in_the_same_words(api: Api, event: str) -> None:
    await api.organisation("other")
    stranger = await api.key(*Scope, org="other")
    draft = await made(api)

    async def ask(draft_id: str) -> tuple[int, str]:
        method, end = ("POST", "/adopt") if event == "adopt" else (event, "")
        reply = await api.send(method, f"{DESIGNS}/{draft_id}{end}", stranger)
        return reply.status_code, reply.text.replace(draft_id, "ID")

    assert await ask(draft["id"]) == await ask(NOBODY)
    assert (await ask(NOBODY))[0] == 404
    for name in ("x", "VD_" + "A" * 26, "%00", "vd_" + "%C3%A4" * 26, "x" * 5000):
        assert (await ask(name))[0] == 404
    assert (await poll(api, draft))["status"] == "ready"


# --- designers that fail ---------------------------------------------------------------------------------------------


async def test_a_designer_that_dies_once_is_asked_again(api: Api) -> None:
    draft = await made(api, instruct="fail 1")
    assert (draft["status"], len(designer(api).jobs)) == ("ready", 2)
    assert len(await api.usage()) == 1


@pytest.mark.parametrize("instruct", ["fail", "unheard"])
async def test_a_designer_that_always_fails_ends_the_draft_and_nothing_is_billed(api: Api, instruct: str) -> None:
    await api.limit(HELD_MICRO_EUR)
    draft = await made(api, instruct=instruct)
    assert (draft["status"], draft["error"], draft["cost_micro_eur"]) == ("failed", draft_worker.FAILED, 0)
    assert "secret" not in json.dumps(draft)
    assert len(designer(api).jobs) == TRIES
    assert await api.usage() == []
    assert (await order(api)).status_code == 202  # nothing is held any more


async def test_a_busy_or_cold_designer_is_waited_for(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    engine: Any = api.service.engines["voice-design-qwen3-tts"]
    faults, call = [BUSY("busy"), *(WARMING_UP() for _ in range(2 * TRIES))], engine.call

    async def moody(*arguments: Any, **options: Any) -> Any:
        if faults:
            raise faults.pop()
        return await call(*arguments, **options)

    monkeypatch.setattr(engine, "call", moody)
    assert (await made(api))["status"] == "ready"


async def test_a_fault_of_our_own_ends_the_draft(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api.state.drafts, "finish", None)
    assert (await made(api))["error"] == draft_worker.FAILED


# --- processes that end ----------------------------------------------------------------------------------------------


def later(api: Api, seconds: float) -> Drafts:
    """The drafts as another process sees them `seconds` later."""
    return seen_by(api, lambda: time.time() + seconds)


def seen_by(api: Api, clock: Callable[[], float]) -> Drafts:
    """The drafts as a process with this clock sees them."""
    return Drafts(api.state.database, api.state.blobs, clock)


@asynccontextmanager
async def another_ingress(api: Api, drafts: Drafts) -> AsyncIterator[DraftWorker]:
    """A second process over the same state, which sees `drafts`."""
    view: Any = dataclasses.make_dataclass("View", ["drafts", "blobs", "clock"])(
        drafts, api.state.blobs, api.state.clock
    )
    second = DraftWorker(api.service.catalog, api.service.engines, view)
    yield second
    await second.close()


async def kill(api: Api) -> None:
    """This process ends between two steps, and its lease stays."""
    state: Any = api.state.drafts
    keep, state.release = state.release, _nothing
    await api.service.drafts.close()
    state.release = keep


async def _nothing(*_: object) -> None:
    """What a dead process does."""


async def test_a_draft_whose_process_died_is_taken_up_by_the_next_poll(api: Api, held: dict[str, Any]) -> None:
    await kill(api)
    designer(api).go.set()
    assert (await poll(api, held))["status"] == "pending"
    assert not api.service.drafts._working  # its lease has not ended yet
    api.state.drafts = later(api, LEASE_S)
    vars(api.service)["drafting"] = DraftWorker(api.service.catalog, api.service.engines, api.state)
    assert (await poll(api, held))["status"] == "pending"
    assert (await until(api, held, "ready"))["cost_micro_eur"] == COST_MICRO_EUR
    assert len(await api.usage()) == 1


async def test_a_draft_whose_process_died_is_taken_up_without_polls(api: Api, held: dict[str, Any]) -> None:
    await kill(api)
    designer(api).go.set()
    left = await api.state.drafts.read(held["id"])
    assert left
    async with another_ingress(api, seen_by(api, lambda: left.work_at - 1)) as early:
        await early.poll()
        assert not early._working
    async with another_ingress(api, seen_by(api, lambda: left.work_at)) as second:
        await second.poll()
        assert (await until(api, held, "ready"))["status"] == "ready"


async def test_a_process_that_is_stopped_gives_its_drafts_back_at_once(api: Api, held: dict[str, Any]) -> None:
    await api.service.drafts.close()
    designer(api).go.set()
    async with another_ingress(api, later(api, 0)) as second:
        await second.poll()
        assert (await until(api, held, "ready"))["status"] == "ready"
    assert len(await api.usage()) == 1


async def test_of_many_processes_one_works_on_a_draft(api: Api) -> None:
    designer(api).go.set()
    draft = await api.state.drafts.order(
        *await anybody(api), model="qwen3-tts", line="l", estimate_micro_eur=1, request_id="r"
    )
    many = [DraftWorker(api.service.catalog, api.service.engines, api.state) for _ in range(5)]
    for process in many:
        process.enqueue(draft.id)
        process.enqueue(draft.id)
    await until(api, {"id": draft.id}, "ready")
    assert len(designer(api).jobs) == 1
    for process in many:
        await process.close()


async def anybody(api: Api) -> tuple[Any, Any]:
    """A caller and a plan."""
    import random

    from contract.voice_design.order import DesignOrder, voice_spec

    caller = await api.state.accounts.authenticate(f"Bearer {api.everything}")
    catalog = api.service.catalog
    return caller, voice_spec(DesignOrder(**ORDER), catalog.traits, catalog.voice_design["qwen3-tts"], random.Random(1))


async def test_a_process_that_died_before_the_adoption_leaves_it_to_the_next(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api.service.drafts, "_adopt_if_ordered", _nothing)
    draft = await made(api, auto_adopt=True)
    assert draft["status"] == "ready"
    async with another_ingress(api, later(api, 0)) as second:
        await second.poll()
        assert (await until(api, draft, "adopted"))["voice"] is not None


async def test_work_that_was_taken_over_is_billed_once(api: Api, held: dict[str, Any]) -> None:
    # The first process is slow, not dead: its lease ends, and both make a voice.
    async with another_ingress(api, later(api, LEASE_S)) as second:
        await second.poll()

        async def both() -> bool:
            return designer(api).under_way == 2

        await eventually(both)
        designer(api).go.set()
        draft = await until(api, held, "ready")

        async def done() -> bool:
            return not second._working and not api.service.drafts._working

        await eventually(done)
    assert [line.cost_micro_eur for line in await api.usage()] == [COST_MICRO_EUR]
    assert (await api.client.get(draft["sample_url"])).status_code == 200
    assert len(await stored(api)) == 2


@pytest.mark.parametrize(("after_s", "status"), [(DRAFT_S - 2, "pending"), (DRAFT_S, "failed")])
async def test_a_draft_that_is_not_finished_after_20_minutes_has_failed(
    api: Api, held: dict[str, Any], after_s: int, status: str
) -> None:
    await kill(api)
    api.state.drafts = later(api, after_s)
    (listed,) = (await api.send("GET", DESIGNS)).json()["data"]
    assert listed["status"] == status
    if status == "failed":
        assert "20 minutes" in listed["error"]
        assert await poll(api, held) == listed
        assert await api.usage() == []


async def test_a_draft_expires_without_polls_and_frees_its_money(api: Api) -> None:
    await api.limit(HELD_MICRO_EUR)
    await ordered(api, instruct="hold")
    await kill(api)
    refused(await order(api), 402, "quota_exceeded")
    await later(api, DRAFT_S).expire()
    assert (await order(api)).status_code == 202


async def test_the_work_goes_on_when_the_client_leaves(api: Api) -> None:
    asking = asyncio.create_task(order(api, instruct="hold"))
    await asyncio.wait({asking})
    designer(api).go.set()
    assert (await until(api, asking.result().json(), "ready"))["status"] == "ready"


async def test_a_process_works_on_a_bounded_number_of_drafts(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft_worker, "AT_ONCE", 1)
    first, second = await ordered(api, instruct="hold"), await ordered(api)
    assert len(api.service.drafts._working) == 1
    assert (await poll(api, second))["status"] == "pending"
    designer(api).go.set()
    await until(api, first, "ready")

    async def idle() -> bool:
        return not api.service.drafts._working

    await eventually(idle)
    await api.service.drafts.poll()
    assert (await until(api, second, "ready"))["status"] == "ready"


# --- money and repetition --------------------------------------------------------------------------------------------


async def test_one_usage_line_by_synthesis_time(api: Api) -> None:
    await api.limit(2 * HELD_MICRO_EUR)
    draft = await made(api)
    (line,) = await api.usage()
    assert (line.line, line.model) == ("voice-design:qwen3-tts", "qwen3-tts")
    assert (line.quantity, line.unit, line.cost_micro_eur) == (1500, "synthesis_ms", COST_MICRO_EUR)
    assert line.quantities == {"synthesis_ms": 1500}
    me = (await api.send("GET", "/v1/me")).json()["spend"]["organisation"]
    assert (me["spent_micro_eur"], me["held_micro_eur"]) == (COST_MICRO_EUR, 0)
    await adopt(api, draft)
    await discard(api, draft)
    assert len(await api.usage()) == 1


async def test_money_is_held_while_a_draft_is_made(api: Api) -> None:
    await api.limit(HELD_MICRO_EUR)
    draft = await ordered(api, instruct="hold")
    me = (await api.send("GET", "/v1/me")).json()["spend"]["organisation"]
    assert me["held_micro_eur"] == HELD_MICRO_EUR
    cost = (await discard(api, draft)).json()["cost_micro_eur"]
    me = (await api.send("GET", "/v1/me")).json()["spend"]["organisation"]
    assert (me["spent_micro_eur"], me["held_micro_eur"]) == (cost, 0)


async def test_money_of_a_draft_outlives_the_lease_of_a_request(api: Api) -> None:
    await api.limit(HELD_MICRO_EUR)
    await ordered(api, instruct="hold")
    await pass_time(api.state.database, DRAFT_S)
    assert await api.state.ledger.reap() == 0


async def test_an_order_sent_twice_is_one_draft(api: Api) -> None:
    headers = {"Idempotency-Key": "k1"}
    first, second = await order(api, headers=headers), await order(api, headers=headers)
    assert (first.status_code, second.status_code) == (202, 202)
    assert second.json() == first.json()
    assert second.headers["idempotent-replayed"] == "true"
    await until(api, first.json(), "ready")
    assert len((await api.send("GET", DESIGNS)).json()["data"]) == 1
    assert len(await api.usage()) == 1
    assert (await order(api, headers=headers, age_years=35)).status_code == 422


async def test_orders_at_once_with_one_key_are_one_draft(api: Api) -> None:
    replies = await asyncio.gather(*(order(api, headers={"Idempotency-Key": "k1"}) for _ in range(20)))
    assert {reply.status_code for reply in replies} <= {202, 409}
    assert len({reply.json()["id"] for reply in replies if reply.status_code == 202}) == 1
    assert len((await api.send("GET", DESIGNS)).json()["data"]) == 1


async def test_an_adoption_sent_twice_is_one_voice(api: Api) -> None:
    draft, headers = await made(api), {"Idempotency-Key": "k1"}
    path = f"{DESIGNS}/{draft['id']}/adopt"
    first, second = [await api.send("POST", path, headers=headers) for _ in range(2)]
    assert (first.status_code, second.status_code) == (200, 200)
    assert second.json() == first.json()
    refused(await adopt(api, draft), 400, "invalid_request_error")
    assert len(await api.state.voices.of(1)) == 1


async def test_of_two_adoptions_at_once_one_wins(api: Api) -> None:
    draft = await made(api)
    replies = await asyncio.gather(*(adopt(api, draft, slug=f"voice-{number}") for number in range(10)))
    assert sorted(reply.status_code for reply in replies) == [200, *[400] * 9]
    (own,) = await api.state.voices.of(1)
    assert (await poll(api, draft))["voice_slug"] == own.voice.slug


async def test_adoption_against_discarding_leaves_all_or_nothing(api: Api) -> None:
    for number in range(5):
        draft = await made(api)
        adopted, discarded = await asyncio.gather(adopt(api, draft, slug=f"voice-{number}"), discard(api, draft))
        assert (adopted.status_code in (200, 400), discarded.status_code) == (True, 200)
        assert (await poll(api, draft))["status"] == "discarded"
        assert await api.state.voices.of(1) == []
    assert await stored(api) == []


# --- what is beside drafts -------------------------------------------------------------------------------------------


async def test_options_name_traits_limits_and_whether_orders_are_taken(api: Api) -> None:
    options = (await api.send("GET", OPTIONS, await api.key())).json()
    assert options["available"] is True
    assert set(options["traits"]) == {"timbre", "character", "tempo", "use_case"}
    assert options["limits"]["adopted_voices"] == OWN_VOICES
    assert options["limits"]["target_hz"] == [60, 400]


async def test_suggestions_design_nothing_and_can_be_ordered(api: Api) -> None:
    reply = await api.send("POST", f"{DESIGNS}/suggest", json={"text": "eine tiefe, ruhige Stimme, ein alter Mann"})
    assert reply.status_code == 200
    suggested = reply.json()
    assert suggested["gender"] == "m"
    assert (designer(api).jobs, await api.usage()) == ([], [])
    fields = {
        name: suggested[name]
        for name in ("gender", "age_years", "language", "timbre", "character", "tempo", "use_case")
    }
    assert (await order(api, **fields)).status_code == 202


async def test_openapi_says_what_orders_and_drafts_hold(api: Api) -> None:
    paths = (await api.client.get("/openapi.json")).json()["paths"]
    ordering = paths[DESIGNS]["post"]
    assert set(ordering["responses"]) == {"202", "default"}
    assert [parameter["name"] for parameter in ordering["parameters"]] == ["Idempotency-Key"]
    adopting = paths[f"{DESIGNS}/{{design_id}}/adopt"]["post"]
    assert adopting["requestBody"]["required"] is False
    assert {parameter["name"] for parameter in adopting["parameters"]} == {"design_id", "Idempotency-Key"}
