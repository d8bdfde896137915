"""The way of a draft over the real app: ordered, polled, heard, adopted, discarded."""

from __future__ import annotations

import io
import json
import wave
from typing import Any

import pytest

from autoscaling.engine import owner_name
from contract.limits import KEPT_DRAFTS, OWN_VOICES
from contract.voice_design.draft import DRAFT_STATES
from tests.api.conftest import Api, refused
from tests.api.designs import (
    COST_MICRO_EUR,
    DEPLOYMENT,
    DESIGNS,
    OPTIONS,
    Draft,
    adopt,
    arrived,
    designer,
    discard,
    draft_in,
    held,
    listed,
    made,
    order,
    ordered,
    poll,
    stored,
)
from tests.waiting import until

__all__ = ["held"]


async def test_202_a_draft_is_pending_and_empty(api: Api, held: Draft) -> None:
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
    await made(api)
    assert api.engine(DEPLOYMENT).callers == [owner_name((await api.caller()).org_id)]


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
        assert (file.getframerate(), file.getnchannels()) == (24_000, 1)
        assert (file.getsampwidth(), file.getnframes()) == (2, 48_000)


async def test_drafts_are_listed_newest_first_and_for_their_organisation_only(api: Api) -> None:
    stranger = await api.stranger()
    ids = [(await made(api))["id"] for _ in range(3)]
    body = (await api.send("GET", DESIGNS)).json()
    assert body["object"] == "list"
    assert {draft["id"] for draft in body["data"]} == set(ids)
    moments = [draft["created_at"] for draft in body["data"]]
    assert moments == sorted(moments, reverse=True)
    assert await listed(api, stranger) == []
    assert KEPT_DRAFTS == 100


async def test_auto_adopt_completes_without_a_poll(api: Api) -> None:
    draft = await ordered(api, auto_adopt=True, slug="our-anna")
    assert draft["auto_adopt"] is True
    after = await arrived(api, draft, "adopted")
    assert after["voice"]["slug"] == "our-anna"


async def test_auto_adopt_completes_with_polls(api: Api) -> None:
    draft = await ordered(api, auto_adopt=True)

    async def adopted() -> bool:
        return (await poll(api, draft))["status"] == "adopted"

    await until(adopted)


async def test_auto_adopt_that_is_refused_leaves_the_draft_ready_and_says_why(api: Api, held: Draft) -> None:
    mine = await ordered(api, auto_adopt=True, slug="our-anna", instruct="hold")
    await adopt(api, await made(api), slug="our-anna")
    designer(api).go.set()

    async def told() -> bool:
        return bool((await poll(api, mine))["error"])

    await until(told)
    draft = await poll(api, mine)
    assert (draft["status"], draft["voice"]) == ("ready", None)
    assert "`our-anna` is in use" in draft["error"]
    reply = await adopt(api, draft, slug="our-bea")
    assert reply.status_code == 200
    assert (await poll(api, draft))["error"] is None


async def test_a_voice_without_a_slug_gets_one_of_its_label(api: Api) -> None:
    for label, slug in (("Jürgen, groß!", "jurgen-gross"), ("Jürgen groß", "jurgen-gross-2"), ("Анна", "voice-f-34")):
        assert (await adopt(api, await made(api, label=label))).json()["slug"] == slug


# --- state by event ---------------------------------------------------------------------------------------------------


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


# --- what is beside drafts --------------------------------------------------------------------------------------------


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
    names = ("gender", "age_years", "language", "timbre", "character", "tempo", "use_case")
    assert (await order(api, **{name: suggested[name] for name in names})).status_code == 202


async def test_openapi_says_what_orders_and_drafts_hold(document: dict[str, Any]) -> None:
    paths = document["paths"]
    ordering = paths[DESIGNS]["post"]
    assert set(ordering["responses"]) == {"202", "default"}
    assert [parameter["name"] for parameter in ordering["parameters"]] == ["Idempotency-Key"]
    adopting = paths[f"{DESIGNS}/{{design_id}}/adopt"]["post"]
    assert adopting["requestBody"]["required"] is False
    assert {parameter["name"] for parameter in adopting["parameters"]} == {"design_id", "Idempotency-Key"}
