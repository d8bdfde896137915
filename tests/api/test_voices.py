"""GET /audio/voices, samples, voices of organisations, and a fifth engine, over the real app."""

import asyncio
import io
import json
from collections.abc import AsyncIterator
from typing import Any

import av
import httpx
import pytest

from contract.access import Scope
from contract.catalog import Catalog
from contract.speech.voices import SAMPLE_ADDRESS_S
from deployments.ingress.flows import speech as flows
from deployments.ingress.flows.speech import ANONYMOUS_REQUESTS
from state import State
from state.voices import own
from tests.api.conftest import Api, refused, serving
from tests.api.engines import LocalEngine
from tests.api.sounds import wav
from tests.catalogs import with_serving
from tests.configs.test_fifth_engine import LANGUAGE, MODEL, PROVIDER, VOICE, catalog
from tests.state.drafts import add_voice
from tests.waiting import until

__all__ = ["catalog"]

SLUG = "our-speaker"


async def voices(api: Api, key: str | None = None) -> dict[str, Any]:
    body: dict[str, Any] = (await api.send("GET", "/v1/audio/voices", key)).json()
    assert body["object"] == "list"
    return body


async def by_slug(api: Api, key: str | None = None) -> dict[str, dict[str, Any]]:
    return {voice["slug"]: voice for voice in (await voices(api, key))["data"]}


async def adopt(api: Api, org_id: int = 1) -> None:
    """Gives organisation `acme` a voice of its own."""
    await api.state.blobs.put("voices/1/clip.wav", wav(1.0, 24_000, b"\1\0"))
    await api.state.blobs.put("voices/1/sample.mp3", b"the sample")
    voice = own(
        slug=SLUG, provider="qwen", label="Ours", gender="f", age_group="30-35", primary_language="de", description=None
    )
    names = {"clip_blob": "voices/1/clip.wav", "sample_blob": "voices/1/sample.mp3"}
    await add_voice(api.state.database, org_id, voice, **names, transcript="hi")


async def test_every_voice_of_the_catalogue_is_listed(api: Api) -> None:
    """Their fields by the spec: tests/contract/test_speech.py."""
    body, found = await voices(api), await by_slug(api)
    assert found.keys() == api.service.catalog.voices.keys()
    assert {voice["scope"] for voice in found.values()} == {"platform"}
    assert (found["bib-f-30"]["provider"], found["bib-f-30"]["model"]) == ("mistral", "voxtral-mini-tts")
    preliminary = {slug for slug, voice in found.items() if voice.get("status") == "preliminary"}
    assert preliminary == {"rooom-f-01", "rooom-f-02", "rooom-m-01", "rooom-m-02"}
    assert all(found[slug]["status_note"] for slug in preliminary)
    assert {name: len(codes) for name, codes in body["languages_by_provider"].items()} == {
        "supertonic": 31, "cosyvoice": 9, "mistral": 9, "qwen": 10
    }  # fmt: skip
    assert (body["languages"], body["aliases"]) == (body["languages_by_provider"]["mistral"], {})


async def test_access_says_what_the_plan_allows(api: Api) -> None:
    """All plans: tests/contract/test_speech.py."""
    await api.organisation("small", "free")
    for key, selectable in ((await api.key(Scope.CHAT, org="small"), False), (api.everything, True)):
        access, found = (await voices(api, key))["access"], await by_slug(api, key)
        assert (access["selectable"], access["hint"] is None, access["via"]) == (selectable, selectable, "tier")
        assert (found["bib-f-30"]["selectable"], found["M1"]["selectable"]) == (selectable, True)


async def test_available_and_503_agree_for_every_voice(api: Api) -> None:
    await adopt(api)
    part = api.without("supertonic-3", "qwen3-tts")
    listed = (await voices(part))["data"]
    assert {voice["available"] for voice in listed} == {True, False}
    for voice in listed:
        reply = await part.send("POST", "/v1/audio/speech", json={"input": "hello", "voice": voice["slug"]})
        is_set_up = reply.status_code == 200
        assert is_set_up or reply.json()["error"]["code"] == "not_configured"
        assert voice["available"] == is_set_up, voice["slug"]


async def test_a_voice_that_its_engine_has_no_recording_of_is_listed_as_not_available(api: Api) -> None:
    recorded, speech = {"voices": {"rooom-f-01": {"clip": "voices/rooom-f-01.wav"}}}, api.service.catalog.speech
    model = with_serving(speech["qwen3-tts"], options=recorded)
    await adopt(api)
    listed = await by_slug(api.with_models(speech={**speech, model.id: model}))
    assert listed["rooom-f-01"]["available"]
    assert not listed["rooom-f-02"]["available"]
    assert listed[SLUG]["available"], "an organisation's voice brings its recording"


async def test_sample_is_made_once_and_plays_without_a_key(api: Api) -> None:
    path = (await by_slug(api))["M1"]["samples"]["fr"]
    first = await api.client.get(path)
    assert (first.status_code, first.headers["content-type"]) == (200, "audio/mpeg")
    about = json.loads(first.content.split(b"\n")[0])
    assert (about["language"], about["voice"], about["format"]) == ("fr", "M1", "mp3")
    assert await api.state.blobs.find("samples/obedient/M1-fr.mp3") == first.content
    assert (await api.client.get(path)).content == first.content
    assert await api.usage() == []


async def test_samples_that_do_not_exist(api: Api) -> None:
    await adopt(api)
    for path in ("M1/samples/zh.mp3", "nobody/samples/de.mp3", "our-speaker/samples/de.mp3"):
        assert (await api.client.get(f"/v1/audio/voices/{path}")).status_code == 404


async def test_a_voice_of_an_organisation_is_its_own_and_speaks_by_its_clip(api: Api) -> None:
    await adopt(api)
    mine, stranger = (await by_slug(api))[SLUG], await api.stranger()
    assert (mine["scope"], mine["origin"], mine["model"]) == ("org", "designed", "qwen3-tts")
    assert "samples" not in mine
    assert SLUG not in await by_slug(api, stranger)
    body = {"input": "hello", "voice": SLUG}
    refused(await api.send("POST", "/v1/audio/speech", stranger, json=body), 400, "unknown_voice")
    reply = await api.send("POST", "/v1/audio/speech", json=body)
    assert (reply.headers["x-voice"], reply.headers["x-voice-provider"]) == (SLUG, "qwen")
    about = json.loads(reply.content.split(b"\n")[0])
    assert (about["voice"], about["clip"]) == (None, [48_000, 24_000, "hi"])
    await api.state.blobs.delete("voices/1/clip.wav")
    refused(await api.send("POST", "/v1/audio/speech", json=body), 400, "unknown_voice")
    await api.change(plan="free")
    refused(await api.send("POST", "/v1/audio/speech", await api.key(*Scope), json=body), 403, "voice_not_in_plan")


async def test_signed_address_plays_for_an_hour_and_for_nothing_else(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    await adopt(api)
    address = (await by_slug(api))[SLUG]["sample_url"]
    reply = await api.client.get(address)
    assert (reply.content, reply.headers["content-type"]) == (b"the sample", "audio/mpeg")
    elsewhere = address.replace("sample.mp3", "clip.wav")
    assert (await api.client.get(elsewhere)).json()["error"]["code"] == "invalid_signature"
    assert (await api.client.get(address.partition("?")[0])).status_code == 403
    now_s = api.state.clock()
    for later_s, status in ((SAMPLE_ADDRESS_S - 5, 200), (SAMPLE_ADDRESS_S + 1, 403)):
        monkeypatch.setattr(api.state.clock, "now_s", now_s + later_s)
        assert (await api.client.get(address)).status_code == status


SAMPLE = "/v1/audio/voices/M1/samples/fr.mp3"


@pytest.fixture
def asleep(api: Api) -> LocalEngine:
    """The engine of M1, without a replica."""
    engine = api.engine(api.service.speech_engines["supertonic"].deployment)
    engine.handle.sleep()
    return engine


async def test_without_a_key_a_sample_wakes_no_engine(api: Api, asleep: LocalEngine) -> None:
    reply = await api.client.get(SAMPLE)
    refused(reply, 503, "sample_unavailable")
    assert reply.headers["retry-after"] == "60"
    assert (await api.send("GET", SAMPLE, "prl_nonsense")).status_code == 401
    await api.state.blobs.put("samples/obedient/M1-de.mp3", b"kept")
    assert (await api.client.get(SAMPLE.replace("fr", "de"))).content == b"kept"
    assert asleep.handle.asked == []
    asleep.handle.is_there = True
    assert (await api.client.get(SAMPLE)).status_code == 200
    assert asleep.handle.asked == ["speak_whole"]


async def test_with_a_key_a_sample_wakes_its_engine(api: Api, asleep: LocalEngine) -> None:
    playing = asyncio.create_task(api.send("GET", SAMPLE, await api.key()))
    await until(lambda: asleep.handle.asked == ["warm"])
    # No other request is held up meanwhile.
    other = "/v1/audio/voices/bib-f-30/samples/de.mp3"
    assert (await api.send("GET", other)).status_code == 200
    assert (await api.client.get(other)).status_code == 200
    asleep.handle.may_start.set()
    assert (await playing).status_code == 200
    assert (await api.client.get(SAMPLE)).content == (await playing).content
    assert asleep.handle.asked == ["warm", "speak_whole"]


async def test_samples_for_strangers_are_made_one_at_a_time_and_few_wait(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = api.service.speech_engines["supertonic"]
    adapter = api.engine(model.deployment).adapter
    go, speak, under_way = asyncio.Event(), adapter.speak_whole, 0

    async def slow(job: Any) -> Any:
        nonlocal under_way
        under_way += 1
        assert under_way == 1
        await go.wait()
        under_way -= 1
        return await speak(job)

    monkeypatch.setattr(adapter, "speak_whole", slow)
    paths = [f"/v1/audio/voices/M1/samples/{code}.mp3" for code in model.languages]
    playing = [asyncio.create_task(api.client.get(path)) for path in paths[:ANONYMOUS_REQUESTS]]
    await until(lambda: under_way == 1 and flows._anonymous.waiting == ANONYMOUS_REQUESTS - 1)
    refused(await api.client.get(paths[ANONYMOUS_REQUESTS]), 503, "sample_unavailable")
    go.set()
    assert {reply.status_code for reply in await asyncio.gather(*playing)} == {200}
    assert (await api.client.get(paths[ANONYMOUS_REQUESTS])).status_code == 200


@pytest.fixture
async def five(catalog: Catalog, state: State) -> AsyncIterator[Api]:
    """The app over that catalogue, with the fifth engine behind it, in the place of all others too: they are listed."""
    engine = LocalEngine(catalog.speech[MODEL])
    async with serving(catalog, state, engines={model.deployment: engine for model in catalog.deployed()}) as api:
        yield api


async def speak(api: Api, **body: str) -> httpx.Response:
    return await api.send("POST", "/v1/audio/speech", json={"input": "Habari yako"} | body)


async def test_it_speaks(five: Api) -> None:
    for body in {"provider": PROVIDER}, {"model": MODEL}, {"voice": VOICE}, {"language": LANGUAGE}:
        reply = await speak(five, response_format="mp3", **body)
        assert (reply.status_code, reply.headers["content-type"]) == (200, "audio/mpeg")
        assert (reply.headers["x-voice-provider"], reply.headers["x-service-model-served"]) == (PROVIDER, MODEL)
        with av.open(io.BytesIO(reply.content)) as file:
            seconds = sum(frame.samples / frame.sample_rate for frame in file.decode(audio=0))
        assert seconds == pytest.approx(1.1, abs=0.1), body


async def test_it_is_listed_and_billed(five: Api) -> None:
    await speak(five, provider=PROVIDER)
    (line,) = await five.usage()
    assert (line.line, line.quantity, line.cost_micro_eur) == (f"speech:{MODEL}", 11, 11)
    models = {model["id"]: model for model in (await five.send("GET", "/v1/models")).json()["data"]}
    assert models[MODEL]["license"] == "CC0-1.0"
    voices = (await five.send("GET", "/v1/audio/voices")).json()
    assert voices["languages_by_provider"][PROVIDER] == [LANGUAGE, "de"]
    (voice,) = [voice for voice in voices["data"] if voice["slug"] == VOICE]
    assert voice["available"]
    sample = await five.client.get(voice["samples"][LANGUAGE])
    assert (sample.status_code, sample.headers["content-type"]) == (200, "audio/mpeg")


async def test_what_it_lacks_is_refused_as_its_stanza_says(five: Api) -> None:
    refused(await speak(five, provider=PROVIDER, voice="F1"), 400, "voice_provider_mismatch")
    reply = await speak(five, provider="nobody")
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "provider")
    assert PROVIDER in reply.json()["error"]["message"]
