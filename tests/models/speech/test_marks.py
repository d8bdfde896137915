"""Whisper listens to Kokoro: a sentence stays whole around marks that a voice cannot perform, and German is understood.

Both as the embedded profile sets them up, where their weights are.
"""

import io
import re
from collections.abc import Iterator

import numpy as np
import pytest
import soundfile

import configs
import models
from benchmarks.quality.transcription import errors
from contract.speech.engine import SpeechJob
from contract.speech.tags import tags_of
from contract.transcription.engine import TranscriptionJob
from models.speech.adapter import SpeechAdapter
from models.speech.expressive import unmarked
from models.transcription.faster_whisper import FasterWhisper
from tests.models.conftest import Fetched
from tests.models.hearing import GERMAN, Samples, sound_of

CATALOG = configs.load("embedded")
ENGINES = {model.provider: model for model in CATALOG.speech.values()}

TAG_S = 0.3
"""What a tag may take, and a little for a melody that changes."""
SPARE_S = 0.1

TAGS = {"cosyvoice": ("[breath]", "[laughter]"), "supertonic": ("<breath>", "<sigh>")}


@pytest.fixture(scope="module")
def speakers(fetched: Fetched) -> Iterator[dict[str, SpeechAdapter]]:
    """Engines with marks, without their watermark, which takes longer than they do."""
    fetched("kokoro-82m")
    loaded = {name: models.load(ENGINES[name].model_copy(update={"watermark": False})) for name in TAGS}
    yield loaded
    for engine in loaded.values():
        engine.close()


def said(engine: SpeechAdapter, text: str, language: str) -> Samples:
    return sound_of(engine, SpeechJob(text, language))


SENTENCES = {
    "en": "Hello there | my good friend | today.",
    "de": "Hallo mein guter | alter Freund | heute.",
    "fr": "Bonjour mon cher | ami d'enfance | aujourd'hui.",
}


@pytest.mark.parametrize("provider", TAGS)
def test_a_tag_takes_no_more_than_a_breath(speakers: dict[str, SpeechAdapter], provider: str) -> None:
    engine = speakers[provider]
    for language in SENTENCES.keys() & set(engine.model.languages):
        without, *tagged = (
            said(engine, SENTENCES[language].replace("|", mark), language) for mark in ("", *TAGS[provider])
        )
        for sound in tagged:
            more_s = (len(sound) - len(without)) / engine.sample_rate
            assert -SPARE_S <= more_s <= 2 * TAG_S + SPARE_S, language
            loud = np.flatnonzero(np.abs(sound) > 0.02 * np.abs(sound).max())
            longest_pause_s = np.diff(loud).max() / engine.sample_rate
            assert longest_pause_s < TAG_S + SPARE_S, language


def test_a_span_costs_nothing(speakers: dict[str, SpeechAdapter]) -> None:
    engine = speakers["cosyvoice"]
    plain = said(engine, "Hello there my good friend today.", "en")
    for span in ("strong", "laughter"):
        marked = said(engine, f"Hello <{span}>there my good</{span}> friend today.", "en")
        assert len(marked) == len(plain)
        assert np.allclose(marked, plain, atol=1e-3)


@pytest.fixture(scope="module")
def whisper(fetched: Fetched) -> Iterator[FasterWhisper]:
    fetched("whisper-base")
    loaded = models.load(CATALOG.transcription["whisper-large-v3"])
    yield loaded
    loaded.close()


async def heard(whisper: FasterWhisper, engine: SpeechAdapter, job: SpeechJob) -> str:
    file = io.BytesIO()
    soundfile.write(file, sound_of(engine, job), engine.sample_rate, format="FLAC")
    parts = [part async for part in whisper.transcribe(TranscriptionJob(file.getvalue(), language=job.language))]
    return " ".join(segment.text for part in parts for segment in part.segments).strip()


@pytest.mark.parametrize("provider", TAGS)
async def test_a_listener_hears_one_sentence(
    speakers: dict[str, SpeechAdapter], whisper: FasterWhisper, provider: str
) -> None:
    for mark in TAGS[provider]:
        text = await heard(whisper, speakers[provider], SpeechJob(SENTENCES["en"].replace("|", mark), "en"))
        assert words(text) == words(SENTENCES["en"])
        assert not re.search(r"[.!?]\s", text), text


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


async def test_german_is_understood(whisper: FasterWhisper) -> None:
    engine, few = models.load(CATALOG.speech["voxtral-mini-tts"]), GERMAN[:8]
    for voice, most in ((None, 0.15), ("bib-f-30", 0.35), ("bib-m-35", 0.4)):
        texts = [await heard(whisper, engine, SpeechJob(text, "de", voice)) for text in few]
        assert errors(" ".join(few), " ".join(texts), "de") <= most, texts
    engine.close()


UNMARKED = {
    "Hello [breath] my": "Hello, my",
    "Hello[laughter]my friend": "Hello, my friend",
    "a [breath] [laughter]<strong>b</strong>": "a, b",
    "un<strong>believ</strong>able": "unbelievable",
    "<laughter>all of it</laughter> and more": "all of it and more",
    "[breath] Hi.": " Hi.",
    "Hi. [breath] You.": "Hi. You.",
    "Hi [breath].": "Hi .",
    "1[breath]000": "1, 000",
    "A.\n\n[breath]\n\nB": "A.\n\n\n\nB",
    "你好[breath]朋友": "你好, 朋友",
    "no [mark] <here>": "no [mark] <here>",
}


def test_what_is_spoken_of_a_text_with_marks() -> None:
    found = {text: unmarked(text, ENGINES["cosyvoice"]) for text in UNMARKED}
    assert {text: spoken for text, (spoken, _) in found.items()} == UNMARKED
    for text, (spoken, ends) in found.items():
        assert (len(ends), ends, ends[-1]) == (len(spoken), sorted(ends), len(text)), text
        assert text[ends[0] - 1] == spoken[0] or ends[0] > 1, text


def test_a_text_of_nothing_but_white_space_and_marks_is_read_in_one_pass() -> None:
    mark = min(tags_of(ENGINES["cosyvoice"]))
    for text in (" " * 4000, f"{mark} " * 400, " " * 4000 + mark, "x" + " " * 4000 + "x"):
        spoken, ends = unmarked(text, ENGINES["cosyvoice"])
        assert len(spoken) == len(ends)
    assert unmarked("Hi <breath> you", ENGINES["qwen"]) == ("Hi <breath> you", list(range(1, 16)))
