"""GET /audio/voices, samples, and voices of organisations, over the real app."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from autoscaling.engine import CallContext, Timings
from contract.access import Scope
from contract.speech.voices import SAMPLE_ADDRESS_S
from deployments.ingress.flows import speech as flows
from deployments.ingress.flows.speech import ANONYMOUS_REQUESTS
from state.voices import own
from tests.api.conftest import Api, refused
from tests.api.sounds import wav
from tests.state.drafts import add_voice
from tests.waiting import until

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


async def test_every_fixed_voice_of_the_spec_is_there(api: Api) -> None:
    found = await by_slug(api)
    fixed = {f"{gender}{n}" for gender in "MF" for n in range(1, 6)}
    assert fixed | {"de-thorsten", "rooom-f-01", "rooom-f-02", "rooom-m-01", "rooom-m-02"} <= set(found)
    catalogue = [voice for slug, voice in found.items() if slug.startswith("bib-")]
    assert len(catalogue) >= 4
    assert {(voice["provider"], voice["model"]) for voice in catalogue} == {("mistral", "voxtral-mini-tts")}
    assert {voice["scope"] for voice in found.values()} == {"platform"}


async def test_preliminary_voices_say_so(api: Api) -> None:
    found = await by_slug(api)
    preliminary = {slug for slug, voice in found.items() if voice.get("status") == "preliminary"}
    assert preliminary == {"rooom-f-01", "rooom-f-02", "rooom-m-01", "rooom-m-02"}
    assert all(found[slug]["status_note"] for slug in preliminary)


async def test_languages_by_provider(api: Api) -> None:
    body = await voices(api)
    assert {name: len(codes) for name, codes in body["languages_by_provider"].items()} == {
        "supertonic": 31, "cosyvoice": 9, "mistral": 9, "qwen": 10
    }  # fmt: skip
    assert body["languages"] == body["languages_by_provider"]["mistral"]


@pytest.mark.parametrize(
    ("plan", "entitlements", "selectable", "via"),
    [("free", (), False, "tier"), ("free", ("voices",), True, "entitlement"), ("starter", (), True, "tier")],
)
async def test_access_says_what_the_plan_allows(
    api: Api, plan: str, entitlements: tuple[str, ...], selectable: bool, via: str
) -> None:
    from state.accounts import organisations

    await api.state.database.run(lambda c: organisations.create(c, "other", plan, entitlements, 1))
    key = await api.key(Scope.CHAT, org="other")
    access = (await voices(api, key))["access"]
    assert (access["selectable"], access["via"], access["tier"]) == (selectable, via, plan)
    assert (access["hint"] is None) == selectable
    found = await by_slug(api, key)
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
    speech = dict(api.service.catalog.speech)
    model = speech["qwen3-tts"]
    assert model.serving
    recorded = {"voices": {"rooom-f-01": {"clip": "voices/rooom-f-01.wav"}}}
    speech[model.id] = model.model_copy(update={"serving": model.serving.model_copy(update={"options": recorded})})
    await adopt(api)
    listed = await by_slug(api.with_models(speech=speech))
    assert listed["rooom-f-01"]["available"]
    assert not listed["rooom-f-02"]["available"]
    assert listed[SLUG]["available"], "an organisation's voice brings its recording"


async def test_without_aliases_none_are_listed(api: Api) -> None:
    assert (await voices(api))["aliases"] == {}


async def test_sample_is_made_once_and_plays_without_a_key(api: Api) -> None:
    path = (await by_slug(api))["M1"]["samples"]["fr"]
    first = await api.client.get(path)
    assert (first.status_code, first.headers["content-type"]) == (200, "audio/mpeg")
    about = json.loads(first.content.split(b"\n")[0])
    assert (about["language"], about["voice"], about["format"]) == ("fr", "M1", "mp3")
    assert await api.state.blobs.find("samples/obedient/M1-fr.mp3") == first.content
    assert (await api.client.get(path)).content == first.content
    assert await api.usage() == []


@pytest.mark.parametrize("path", ["M1/samples/zh.mp3", "nobody/samples/de.mp3", "our-speaker/samples/de.mp3"])
async def test_samples_that_do_not_exist(api: Api, path: str) -> None:
    await adopt(api)
    assert (await api.client.get(f"/v1/audio/voices/{path}")).status_code == 404


async def test_own_voice_is_seen_by_its_organisation_only(api: Api) -> None:
    await adopt(api)
    await api.organisation("other")
    mine = (await by_slug(api))[SLUG]
    assert (mine["scope"], mine["origin"], mine["model"]) == ("org", "designed", "qwen3-tts")
    assert "samples" not in mine
    stranger = await api.key(*Scope, org="other")
    assert SLUG not in await by_slug(api, stranger)
    reply = await api.send("POST", "/v1/audio/speech", stranger, json={"input": "x", "voice": SLUG})
    assert reply.json()["error"]["code"] == "unknown_voice"


async def test_own_voice_speaks_by_its_clip(api: Api) -> None:
    await adopt(api)
    reply = await api.send("POST", "/v1/audio/speech", json={"input": "hello", "voice": SLUG})
    assert (reply.headers["x-voice"], reply.headers["x-voice-provider"]) == (SLUG, "qwen")
    about = json.loads(reply.content.split(b"\n")[0])
    assert (about["voice"], about["clip"]) == (None, [48_000, 24_000, "hi"])


async def test_own_voice_needs_voice_selection(api: Api) -> None:
    await api.organisation("small", "free")
    await adopt(api, org_id=2)
    key = await api.key(*Scope, org="small")
    reply = await api.send("POST", "/v1/audio/speech", key, json={"input": "x", "voice": SLUG})
    refused(reply, 403, "voice_not_in_plan")


async def test_signed_address_plays_for_an_hour_and_for_nothing_else(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    await adopt(api)
    address = (await by_slug(api))[SLUG]["sample_url"]
    reply = await api.client.get(address)
    assert (reply.content, reply.headers["content-type"]) == (b"the sample", "audio/mpeg")
    elsewhere = address.replace("sample.mp3", "clip.wav")
    assert (await api.client.get(elsewhere)).json()["error"]["code"] == "invalid_signature"
    assert (await api.client.get(address.partition("?")[0])).status_code == 403
    now = time.time()
    for later_s, status in ((SAMPLE_ADDRESS_S - 5, 200), (SAMPLE_ADDRESS_S + 1, 403)):
        monkeypatch.setattr(api.state.signatures, "_wall", lambda later_s=later_s: now + later_s)
        assert (await api.client.get(address)).status_code == status


async def test_behind_a_proxy_a_signed_address_says_https_and_keeps_its_path(api: Api) -> None:
    await adopt(api)
    public = "https://api.example.org/voice"
    behind = api.changed("http://10.0.0.7:8000", public_url=public)
    address = (await by_slug(behind))[SLUG]["sample_url"]
    assert address.startswith(f"{public}/files/voices/1/sample.mp3?expires=")
    assert (await behind.client.get(address.removeprefix(public))).content == b"the sample"


# --- samples that are not made yet -----------------------------------------------------------------------------------

SAMPLE = "/v1/audio/voices/M1/samples/fr.mp3"


@pytest.fixture
def speaker(api: Api) -> Any:
    """The engine behind M1."""
    return api.service.engine(api.service.speech_engines["supertonic"])


class Asleep:
    """An engine without a replica, until it is woken."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.woken = asyncio.Event()
        self.ready_calls = self.calls = 0

    def free(self) -> int:
        return int(self.woken.is_set())

    async def ready(self, within_s: float, *, timings: Timings) -> None:
        self.ready_calls += 1
        await self.woken.wait()

    async def call(self, method: Any, job: Any, *, context: CallContext) -> Any:
        self.calls += 1
        return await self.engine.call(method, job, context=context)


@pytest.fixture
def asleep(api: Api, speaker: Any) -> Asleep:
    sleeping: Any = Asleep(speaker)
    api.replace_engines(sleeping, api.service.speech_engines["supertonic"].deployment)
    return sleeping


async def test_without_a_key_a_sample_wakes_no_engine(api: Api, asleep: Asleep) -> None:
    reply = await api.client.get(SAMPLE)
    refused(reply, 503, "sample_unavailable")
    assert reply.headers["retry-after"] == "60"
    assert (asleep.ready_calls, asleep.calls) == (0, 0)


async def test_without_a_key_a_sample_is_made_by_an_engine_that_runs_and_has_room(api: Api, asleep: Asleep) -> None:
    asleep.woken.set()
    assert (await api.client.get(SAMPLE)).status_code == 200
    assert (asleep.ready_calls, asleep.calls) == (0, 1)


async def test_a_sample_that_is_kept_plays_while_its_engine_sleeps(api: Api, asleep: Asleep) -> None:
    await api.state.blobs.put("samples/obedient/M1-fr.mp3", b"kept")
    assert (await api.client.get(SAMPLE)).content == b"kept"
    assert asleep.calls == 0


async def test_with_a_key_a_sample_wakes_its_engine(api: Api, asleep: Asleep) -> None:
    playing = asyncio.create_task(api.send("GET", SAMPLE, await api.key()))
    await until(lambda: asleep.ready_calls == 1)
    # Nobody else is held up meanwhile.
    other = "/v1/audio/voices/bib-f-30/samples/de.mp3"
    assert (await api.client.get(other)).status_code == 200
    assert (await api.send("GET", other)).status_code == 200
    asleep.woken.set()
    assert (await playing).status_code == 200
    assert (await api.client.get(SAMPLE)).content == (await playing).content
    assert asleep.calls == 1


async def test_a_key_that_is_wrong_is_401_and_wakes_nothing(api: Api, asleep: Asleep) -> None:
    assert (await api.send("GET", SAMPLE, "prl_nonsense")).status_code == 401
    assert asleep.ready_calls == 0


async def test_samples_for_strangers_are_made_one_at_a_time_and_few_wait(
    api: Api, asleep: Asleep, monkeypatch: pytest.MonkeyPatch
) -> None:
    asleep.woken.set()
    go, call, under_way = asyncio.Event(), asleep.call, 0

    async def slow(*arguments: Any, **options: Any) -> Any:
        nonlocal under_way
        under_way += 1
        assert under_way == 1
        await go.wait()
        under_way -= 1
        return await call(*arguments, **options)

    monkeypatch.setattr(asleep, "call", slow)
    model = api.service.speech_engines["supertonic"]
    paths = [f"/v1/audio/voices/M1/samples/{code}.mp3" for code in model.languages]
    playing = [asyncio.create_task(api.client.get(path)) for path in paths[:ANONYMOUS_REQUESTS]]
    await until(lambda: under_way == 1 and flows._anonymous.waiting == ANONYMOUS_REQUESTS - 1)
    refused = await api.client.get(paths[ANONYMOUS_REQUESTS])
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "sample_unavailable")
    go.set()
    assert {reply.status_code for reply in await asyncio.gather(*playing)} == {200}
    assert (await api.client.get(paths[ANONYMOUS_REQUESTS])).status_code == 200
