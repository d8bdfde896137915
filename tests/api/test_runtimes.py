"""An engine whose languages are spoken by two: everything that names what ran names what spoke this language."""

from __future__ import annotations

import pytest

from contract.catalog import Speaker
from tests.api.conftest import Api


@pytest.fixture
def mixed(api: Api) -> Api:
    """`supertonic-3` speaks English and French with `fine`, all else with `plain`."""
    model = api.service.catalog.speech["supertonic-3"]
    assert model.serving
    two = {"runtime": "fine", "license": "MIT", "languages": ("en", "fr"), "fallback": Speaker(runtime="plain")}
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
    assert fine == {"runtime": "fine", "license": "MIT", "languages": ["en", "fr"]}
    assert (plain["runtime"], plain["license"]) == ("plain", None)
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
