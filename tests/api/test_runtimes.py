"""An engine whose languages are spoken by two: everything that names what ran names what spoke this language."""

from __future__ import annotations

import pytest

from contract.catalog.base import DefaultSpeechRuntime, SpeechRuntime
from tests.api.conftest import Api


@pytest.fixture
def mixed(api: Api) -> Api:
    """`supertonic-3` speaks English and French with `fine`, all else with `plain`."""
    model = api.service.catalog.speech["supertonic-3"]
    assert model.serving
    plain = SpeechRuntime(runtime="plain", description="Like a robot.")
    two = {"runtime": "fine", "license": "MIT", "languages": ("en", "fr"), "fallback": plain}
    changed = model.model_copy(update={"serving": model.serving.model_copy(update=two)})
    return api.with_models(speech=api.service.catalog.speech | {model.id: changed})


@pytest.mark.parametrize(("language", "ran"), [("en", "fine"), ("fr", "fine"), ("de", "plain"), ("vi", "plain")])
async def test_the_header_names_what_spoke_this_text(mixed: Api, language: str, ran: str) -> None:
    body = {"input": "Hello.", "voice": "F1", "language": language, "model": "plain"}
    reply = await mixed.send("POST", "/v1/audio/speech", json=body)
    assert reply.status_code == 200
    assert reply.headers["x-service-model-served"] == ran
    assert reply.headers.get("x-service-model-requested") == (None if ran == "plain" else "plain")


async def test_models_and_voices_say_who_speaks_what(mixed: Api) -> None:
    listed = {model["id"]: model for model in (await mixed.send("GET", "/v1/models")).json()["data"]}
    model = listed["supertonic-3"]
    assert (model["runtime"], model["license"]) == ("fine", "MIT")
    fine, plain = model["runtimes"]
    assert fine == {"runtime": "fine", "license": "MIT", "description": None, "languages": ["en", "fr"]}
    assert (plain["runtime"], plain["license"], plain["description"]) == ("plain", None, "Like a robot.")
    assert {*fine["languages"], *plain["languages"]} == set(mixed.service.catalog.speech["supertonic-3"].languages)
    assert "runtimes" not in listed["voxtral-mini-tts"]
    voices = {voice["slug"]: voice for voice in (await mixed.send("GET", "/v1/audio/voices")).json()["data"]}
    assert (voices["F1"]["runtime"], voices["F1"]["runtimes"]) == ("fine", [fine, plain])
    assert "runtimes" not in voices["bib-f-30"]


async def test_samples_are_kept_under_what_spoke_them(mixed: Api) -> None:
    for language in ("fr", "vi"):
        reply = await mixed.client.get(f"/audio/voices/F1/samples/{language}.mp3")
        assert reply.status_code == 200
    assert await mixed.state.blobs.find("samples/fine/F1-fr.mp3")
    assert await mixed.state.blobs.find("samples/plain/F1-vi.mp3")
    assert not await mixed.state.blobs.find("samples/fine/F1-vi.mp3")


@pytest.fixture
def clear(api: Api) -> Api:
    """The default engine speaks German with `clear` where a request names no voice."""
    model = api.service.catalog.speech["voxtral-mini-tts"]
    assert model.serving
    spoken = {"runtime": "fine", "by_default": DefaultSpeechRuntime(runtime="clear", languages=("de",))}
    changed = model.model_copy(update={"serving": model.serving.model_copy(update=spoken)})
    return api.with_models(speech=api.service.catalog.speech | {model.id: changed})


@pytest.mark.parametrize(
    ("asked", "ran"),
    [
        ({}, "clear"),
        ({"voice": "default-de"}, "clear"),
        ({"voice": "bib-f-30"}, "fine"),
        ({"voice": "default-en"}, "fine"),
    ],
)
async def test_a_request_without_a_voice_is_named_after_what_speaks_by_default(
    clear: Api, asked: dict[str, str], ran: str
) -> None:
    text = "Good morning to you all." if asked.get("voice") == "default-en" else "Guten Morgen, liebe Leute."
    reply = await clear.send("POST", "/v1/audio/speech", json={"input": text, **asked})
    assert reply.status_code == 200
    assert reply.headers["x-service-model-served"] == ran


async def test_models_list_what_speaks_by_default_and_voices_what_speaks_them(clear: Api) -> None:
    listed = {model["id"]: model for model in (await clear.send("GET", "/v1/models")).json()["data"]}
    spoken = {by["runtime"]: by["languages"] for by in listed["voxtral-mini-tts"]["runtimes"]}
    assert spoken["clear"] == ["de"]
    assert "de" not in spoken["fine"]
    voices = {voice["slug"]: voice for voice in (await clear.send("GET", "/v1/audio/voices")).json()["data"]}
    assert voices["bib-f-30"]["runtime"] == "fine"
    assert "runtimes" not in voices["bib-f-30"]
