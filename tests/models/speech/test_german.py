"""German, which Kokoro was not trained with: whether it is understood, and who speaks it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

import configs
import models
from benchmarks.quality.kokoro import VOICES, ears
from benchmarks.quality.transcription import errors
from contract.speech.engine import SpeechJob
from models.kokoro.phonemes import runs
from models.kokoro.speaker import ESPEAK_NAMES
from models.speech.adapter import SpeechAdapter
from tests.models.conftest import Fetched
from tests.models.hearing import pitch_of, sound_of
from tests.provenance import read_provenance

CATALOG = configs.load("embedded")
MODEL = CATALOG.speech["voxtral-mini-tts"]
SENTENCES = VOICES["everyday"]["de"]
FEW = SENTENCES[:8]

RARE = """
Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. Pfützen, Strümpfe, Äpfel, Häuser, Feuer, Mythos,
Psyche, Xylophon, Dschungel, tschüss, Genie, Chance, Restaurant, Croissant, Journalist, Computer, Team, Pizza, Show.
"""


@pytest.fixture(scope="module")
def engine(fetched: Fetched) -> Iterator[SpeechAdapter]:
    fetched("kokoro-82m")
    loaded: SpeechAdapter = models.load(MODEL)
    yield loaded
    loaded.close()


@pytest.fixture(scope="module")
def understood(fetched: Fetched) -> Callable[..., str]:
    fetched("whisper-base")
    return ears()


@pytest.mark.parametrize("language", ESPEAK_NAMES)
def test_the_network_knows_every_phoneme_that_it_is_given(fetched: Fetched, language: str) -> None:
    known = json.loads((fetched("kokoro-82m") / "vocab.json").read_text("utf-8"))["vocab"]
    for text in (CATALOG.sentences[language], *((RARE, *SENTENCES) if language == "de" else ())):
        assert set("".join(runs(text, ESPEAK_NAMES[language]))) <= known.keys()


@pytest.mark.parametrize(("voice", "most"), [(None, 0.15), ("bib-f-30", 0.35), ("bib-m-35", 0.4)])
def test_german_is_understood(
    engine: SpeechAdapter, understood: Callable[..., str], voice: str | None, most: float
) -> None:
    heard = [understood(sound_of(engine, SpeechJob(text, "de", voice)), engine.sample_rate, "de") for text in FEW]
    assert errors(" ".join(FEW), " ".join(heard), "de") <= most, heard


@pytest.mark.parametrize(
    ("voice", "language", "ran"),
    [
        (None, "de", "svox-pico"),
        ("bib-f-30", "de", "kokoro-82m"),
        (None, "en", "kokoro-82m"),
        (None, "nl", "espeak-ng"),
    ],
)
async def test_the_mark_of_a_file_names_who_spoke(
    engine: SpeechAdapter, voice: str | None, language: str, ran: str
) -> None:
    block = await engine.speak_whole(SpeechJob("Hallo.", language, voice, format="mp3"))
    assert read_provenance(block.data)["engine"] == ran


def test_men_are_lower_than_women(engine: SpeechAdapter) -> None:
    women, men = (
        [
            pitch_of(sound_of(engine, SpeechJob(FEW[2], "de", slug)), engine.sample_rate).f0_hz
            for slug in (f"bib-{gender}-{age}" for age in ages)
        ]
        for gender, ages in (("f", (20, 30)), ("m", (35, 65)))
    )
    assert max(men) < min(women)
