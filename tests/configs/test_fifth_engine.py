"""The drill: a fifth speech engine, with a language of its own, is a stanza, voices, a sentence and one adapter file.

It starts from the catalogue as shipped. No code of the product changes.
"""

import io
import shutil
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import av
import pytest

import configs
import models
from contract.catalog import Catalog
from contract.errors import LANGUAGE_NOT_SUPPORTED
from contract.speech.engine import SpeechJob
from contract.speech.request import SpeechRequest
from contract.speech.routing import SpeechRoute, choose
from tests.contract.bodies import refusal

PROVIDER, MODEL, VOICE, LANGUAGE = "tone", "tone-1", "tone-f-01", "sw"

TODAY = date(2026, 11, 1)

STANZA = """
[tone-1]
owned_by = "tests"
license = "CC0-1.0"
provider = "tone"
languages = ["sw", "de"]
max_input_chars = 500
formats = ["flac", "mp3"]
sample_rate = 24_000
default_voice = "tone-f-01"
takeover_order = 15
price = { characters = 1_000_000 }

[tone-1.serving.embedded]
adapter = "further_engines.tone:Tone"
runtime = "tone-1"
options = { height_hz = 440.0 }
deployment = { ray_actor_options = { num_cpus = 0.05 } }
"""

SENTENCE = """
sw = "Habari ya asubuhi. Hii ndiyo sauti yangu."
"""

VOICES = """
[tone-f-01]
provider = "tone"
label = "Tone"
origin = "preset"
gender = "f"
age_group = "30-40"
primary_language = "sw"
"""

ADAPTER = '''
"""A tone, a tenth of a second for each character."""

import numpy as np

from contract.base import Frozen
from models.options import read
from models.speech import adapter


class Options(Frozen):
    height_hz: float


class Tone(adapter.SpeechAdapter):
    options_type = Options

    def __init__(self, model, path):
        super().__init__(model, path)
        self._height_hz = read(model, Options).height_hz

    def render(self, job):
        count = self.sample_rate * len(job.text) // 10
        phase = 2 * np.pi * self._height_hz * np.arange(count) / self.sample_rate
        yield adapter.Spoken((0.5 * np.sin(phase)).astype(np.float32), len(job.text))
'''


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalog]:
    """The catalogue as shipped and the fifth engine, whose adapter can be imported."""
    folder, code = tmp_path / "catalog", tmp_path / "code" / "further_engines"
    shutil.copytree(configs.FOLDER / "catalog", folder)
    for file, text in (("speech.toml", STANZA), ("voices.toml", VOICES), ("sentences.toml", SENTENCE)):
        (folder / file).write_text((folder / file).read_text("utf-8") + text, "utf-8")
    code.mkdir(parents=True)
    (code / "tone.py").write_text(ADAPTER, "utf-8")
    monkeypatch.syspath_prepend(code.parent)
    yield configs.load("embedded", folder)
    for name in ("further_engines", "further_engines.tone"):
        sys.modules.pop(name, None)


def chosen(catalog: Catalog, *, detected: str = "de", **body: object) -> SpeechRoute:
    engines = {model.provider: model for model in catalog.speech.values()}
    request = SpeechRequest.model_validate({"input": "Habari"} | body)
    return choose(request, catalog.voices, engines, detected, TODAY)


def test_requests_reach_it_and_its_formats_are_its_own(catalog: Catalog) -> None:
    for body in (
        *({"provider": PROVIDER}, {"model": MODEL}, {"voice": VOICE}, {"language": LANGUAGE}, {"language": "sw-KE"}),
        {"language": "auto", "detected": LANGUAGE},
    ):
        choice = chosen(catalog, **body)
        assert (choice.model.id, choice.voice, choice.format) == (MODEL, VOICE, "flac"), body
    formats = {wanted: chosen(catalog, provider=PROVIDER, response_format=wanted).format for wanted in ("mp3", "wav")}
    assert formats == {"mp3": "mp3", "wav": "flac"}


def test_the_others_keep_their_places_and_know_of_it(catalog: Catalog) -> None:
    providers = {language: chosen(catalog, language=language).model.provider for language in ("de", "ja", "tr")}
    assert providers == {"de": "mistral", "ja": "qwen", "tr": "supertonic"}
    assert LANGUAGE in catalog.spoken_languages
    assert catalog.sentences[LANGUAGE].startswith("Habari")
    assert catalog.voices[VOICE].provider == PROVIDER
    refusal(chosen, catalog, language="xx", fault=LANGUAGE_NOT_SUPPORTED)
    assert f", {PROVIDER}" in refusal(chosen, catalog, provider="nobody").message


@pytest.mark.parametrize("wanted", ["flac", "mp3"])
async def test_it_speaks(catalog: Catalog, wanted: str) -> None:
    choice = chosen(catalog, language=LANGUAGE, response_format=wanted)
    engine = models.load(choice.model)
    try:
        block = await engine.speak_whole(SpeechJob("Habari yako", LANGUAGE, choice.voice, format=choice.format))
    finally:
        engine.close()
    assert (block.characters, block.seconds) == (11, pytest.approx(1.1))
    with av.open(io.BytesIO(block.data)) as file:
        (stream,) = file.streams.audio
        assert stream.codec_context.name in (wanted, f"{wanted}float")
        seconds = sum(frame.samples / frame.sample_rate for frame in file.decode(stream))
    assert seconds == pytest.approx(1.1, abs=0.1)
