"""The drill through the whole API: a fifth speech engine is listed, chosen, heard and billed, and no file changed."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator

import av
import httpx
import pytest

from contract.catalog import Catalog
from state import State
from tests.api.conftest import Api, refused, serving
from tests.api.engines import LocalEngine
from tests.configs.test_fifth_engine import LANGUAGE, MODEL, PROVIDER, VOICE, catalog

__all__ = ["catalog"]


@pytest.fixture
async def five(catalog: Catalog, state: State) -> AsyncIterator[Api]:
    """The app over that catalogue, with the fifth engine behind it, in the place of all others too: they are listed."""
    engine = LocalEngine(catalog.speech[MODEL])
    async with serving(catalog, state, engines={model.deployment: engine for model in catalog.deployed()}) as api:
        yield api


async def speak(api: Api, **body: str) -> httpx.Response:
    return await api.send("POST", "/v1/audio/speech", json={"input": "Habari yako"} | body)


@pytest.mark.parametrize(
    "body", [{"provider": PROVIDER}, {"model": MODEL}, {"voice": VOICE}, {"language": LANGUAGE}], ids=lambda b: min(b)
)
async def test_it_speaks(five: Api, body: dict[str, str]) -> None:
    reply = await speak(five, response_format="mp3", **body)
    assert (reply.status_code, reply.headers["content-type"]) == (200, "audio/mpeg")
    assert reply.headers["x-voice-provider"] == PROVIDER
    assert reply.headers["x-service-model-served"] == MODEL
    with av.open(io.BytesIO(reply.content)) as file:
        seconds = sum(frame.samples / frame.sample_rate for frame in file.decode(audio=0))
    assert seconds == pytest.approx(1.1, abs=0.1)


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
