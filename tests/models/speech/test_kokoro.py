"""Kokoro behind the engines of the embedded profile: with its real weights where something must be heard."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest

import configs
import models
from contract.catalog import SpeechModel
from contract.catalog.base import DefaultSpeechRuntime
from contract.speech.engine import SpeechJob
from models.kokoro.phonemes import runs
from models.kokoro.speaker import ESPEAK_NAMES, LEVEL, SAMPLE_RATE, Kokoro
from models.kokoro.styles import KokoroVoice
from models.speech.adapter import SpeechAdapter
from models.speech.kokoro import FIRST_CHARS, KokoroSpeech
from tests.models.conftest import Fetched
from tests.models.hearing import EVERYDAY, pitch_of, sound_of, tone
from tests.provenance import read_provenance

CATALOG = configs.load("embedded")
ENGINES = {model.provider: model for model in CATALOG.speech.values()}

SHORT = "Nobody knows the way."
LONG = "Nobody knows where the river goes, and nobody asks. " * 12
FEW_PHONEMES = 10
SENTENCES = EVERYDAY["de"]
RARE = """
Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. Pfützen, Strümpfe, Äpfel, Häuser, Feuer, Mythos,
Psyche, Xylophon, Dschungel, tschüss, Genie, Chance, Restaurant, Croissant, Journalist, Computer, Team, Pizza, Show.
"""


@pytest.fixture(scope="module")
def kokoro(fetched: Fetched) -> Kokoro:
    return Kokoro(fetched("kokoro-82m"), 2)


@pytest.fixture(scope="module")
def engine(fetched: Fetched) -> Iterator[KokoroSpeech]:
    """`cosyvoice`, which has marks, styles, speed and clips, without its watermark."""
    fetched("kokoro-82m")
    adapter = models.load(ENGINES["cosyvoice"].model_copy(update={"watermark": False}))
    yield adapter
    adapter.close()


def height_hz(samples: np.ndarray) -> float:
    return pitch_of(samples, SAMPLE_RATE).f0_hz


# What is heard


def test_a_sentence_is_as_long_and_as_loud_as_speech_is(kokoro: Kokoro) -> None:
    for styles in ({"af_heart": 1.0}, {"am_onyx": 0.5, "bm_fable": 0.5}):
        sound = kokoro.speak(SHORT, "en", KokoroVoice(styles=styles))
        assert sound.dtype == np.float32
        assert sound.ndim == 1
        assert 0.8 < len(sound) / SAMPLE_RATE < 3
        assert LEVEL / 2 < sound[np.abs(sound) > 0.003].std() < 2 * LEVEL


def test_between_two_styles_the_pitch_follows_the_share(kokoro: Kokoro) -> None:
    def at(share: float) -> float:
        styles = {name: weight for name, weight in (("am_echo", 1 - share), ("bf_alice", share)) if weight}
        return height_hz(kokoro.speak("Nobody knows where it will go.", "en", KokoroVoice(styles=styles)))

    low, middle, high = (at(share) for share in (0, 0.5, 1))
    assert low < 0.6 * high
    assert 0.25 < (middle - low) / (high - low) < 0.75


def test_every_preset_voice_is_its_own(kokoro: Kokoro) -> None:
    """Two voices differ in pitch, or in the spectrum of the same sentence."""
    listed = [model.serving.options["voices"] for model in ENGINES.values() if model.serving]
    voices = {slug: KokoroVoice.model_validate(voice) for voices in listed for slug, voice in voices.items()}
    sounds = {slug: kokoro.speak("Nobody knows now.", "en", voice) for slug, voice in voices.items()}
    heights_hz = {slug: height_hz(sound) for slug, sound in sounds.items()}
    spectra = {slug: _spectrum_db(sound) for slug, sound in sounds.items()}
    for one, other in combinations(voices, 2):
        higher = abs(np.log2(heights_hz[one] / heights_hz[other]))
        brighter_db = np.abs(spectra[one] - spectra[other]).mean()
        assert higher > 0.1 or brighter_db > 1.5, (one, other, higher, brighter_db)
    men, women = ([heights_hz[slug] for slug in voices if CATALOG.voices[slug].gender == g] for g in ("m", "f"))
    assert max(men) < np.median(women)
    assert np.median(men) < min(women)


def _spectrum_db(sound: np.ndarray) -> np.ndarray:
    """Mean power in 24 bands, each a third of an octave or so, relative to all."""
    power = np.abs(np.fft.rfft(sound)) ** 2
    hz = np.fft.rfftfreq(len(sound), 1 / SAMPLE_RATE)
    edges = np.geomspace(100, 10_000, 25)
    bands = [power[(hz >= low) & (hz < high)].mean() for low, high in pairwise(edges)]
    return 10 * np.log10(np.array(bands) / power.mean())


def test_a_clip_is_imitated_in_its_pitch(engine: KokoroSpeech) -> None:
    for f0_hz in (100, 180):
        spoken = sound_of(engine, SpeechJob("Nobody knows where it will go.", "en", clip=tone(f0_hz)))
        assert height_hz(spoken) == pytest.approx(f0_hz, rel=0.15)


def test_a_designed_voice_is_spoken_by_its_recipe(engine: KokoroSpeech, kokoro: Kokoro) -> None:
    voice = KokoroVoice(styles={"am_onyx": 0.6, "am_echo": 0.4})
    spoken = sound_of(engine, SpeechJob(SHORT, "en", recipe=voice.model_dump_json()))
    assert len(spoken) == len(kokoro.speak(SHORT, "en", voice))
    assert height_hz(spoken) < 115


def test_styles_and_speed_change_what_is_heard(engine: KokoroSpeech) -> None:
    plain = SpeechJob(SHORT, "en")
    usual = sound_of(engine, plain)
    deep = sound_of(engine, replace(plain, style="a deep, quiet voice"))
    assert height_hz(deep) < 0.95 * height_hz(usual)
    assert deep.std() < 0.7 * usual.std()
    assert len(sound_of(engine, replace(plain, speed=2.0))) == pytest.approx(len(usual) / 2, rel=0.2)


# Turns


class Tones:
    """In place of the network: it hums as long as it was given phonemes, and holds long runs up until it is open."""

    def __init__(self) -> None:
        self.lengths: list[int] = []
        self.is_open = threading.Event()
        self.is_open.set()
        self.began = threading.Semaphore(0)

    def sound(self, inputs: dict[str, np.ndarray]) -> np.ndarray:
        count = inputs["tokens"].shape[1]
        self.lengths.append(count)
        self.began.release()
        assert count <= FEW_PHONEMES or self.is_open.wait(60)
        return np.sin(np.arange(600 * count) / 20).astype(np.float32)


@pytest.fixture
def humming(engine: KokoroSpeech, monkeypatch: pytest.MonkeyPatch) -> Tones:
    tones = Tones()
    monkeypatch.setattr(engine._kokoro, "network", tones)
    return tones


def test_the_first_sound_comes_after_the_first_clause(engine: KokoroSpeech, humming: Tones) -> None:
    parts = engine.render(SpeechJob(LONG, "en"))
    first = next(parts)
    assert len(humming.lengths) == 1
    assert LONG[: first.characters] == "Nobody knows where the river goes, "
    assert first.characters <= FIRST_CHARS
    assert next(parts).characters == LONG.index(".") + 2
    parts.close()


def test_a_short_first_sentence_is_not_cut(engine: KokoroSpeech, humming: Tones) -> None:
    for length, parts in ((FIRST_CHARS - 1, 1), (FIRST_CHARS, 1), (FIRST_CHARS + 1, 2)):
        text = ("word " * 20)[: length - 1].replace(" w", "aw") + "."
        cut = text[:20] + " " + text[21:]
        assert len(list(engine.render(SpeechJob(cut, "en")))) == parts


def test_a_short_text_waits_for_no_long_one_of_another_owner(engine: KokoroSpeech, humming: Tones) -> None:
    humming.is_open.clear()
    turns = engine._kokoro._slots
    with ThreadPoolExecutor(4) as threads:
        long = [threads.submit(sound_of, engine, SpeechJob(LONG, "en", owner="much")) for _ in range(3)]
        assert humming.began.acquire(timeout=30)
        while turns.waiting < 2:  # the other two wait for their turn
            threading.Event().wait(0.001)
        short = threads.submit(sound_of, engine, SpeechJob("Hi.", "en", owner="little"))
        try:
            assert len(short.result(30))
            assert not any(one.done() for one in long)
        finally:
            humming.is_open.set()
        assert len({len(one.result(30)) for one in long}) == 1


async def test_who_leaves_stops_the_engine_after_the_sentence_at_hand(engine: KokoroSpeech, humming: Tones) -> None:
    blocks = engine.speak(SpeechJob(LONG, "en"))
    await anext(blocks)
    await blocks.aclose()
    humming.is_open.set()
    assert len(sound_of(engine, SpeechJob("Hi.", "en")))  # whatever was under way has had its turn before
    assert len(humming.lengths) <= 4


# What is refused


def changed(model: SpeechModel, **serving: Any) -> SpeechModel:
    assert model.serving is not None
    return model.model_copy(update={"serving": model.serving.model_copy(update=serving)})


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"options": {"voices": {"x": {"styles": {"af_nobody": 1}}}}}, "voice `x` of `qwen3-tts`: .* `af_nobody`"),
        ({"languages": ("en", "ko")}, "Kokoro does not speak `ko`"),
        ({"by_default": DefaultSpeechRuntime(runtime="svox-pico", languages=("de", "ru"))}, "Pico does not speak `ru`"),
        ({"options": {"voices": {}}}, r"`options\.voices`"),
    ],
)
def test_a_stanza_that_kokoro_cannot_serve_is_refused(kokoro: Kokoro, change: dict, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        models.load(changed(ENGINES["qwen"], **change))


def test_kokoro_refuses_what_it_has_not(kokoro: Kokoro) -> None:
    with pytest.raises(ValueError, match="does not speak `ko`"):
        kokoro.speak("안녕.", "ko", KokoroVoice(styles={"af_heart": 1}))
    with pytest.raises(ValueError, match="no style `af_nobody`"):
        kokoro.speak("Hello.", "en", KokoroVoice(styles={"af_nobody": 1}))


def test_every_preset_has_a_voice_of_both_synthesizers() -> None:
    seen = set()
    for profile in configs.PROFILES:
        catalog = configs.load(profile)
        for model in catalog.speech.values():
            if model.serving and model.serving.adapter == "models.speech.kokoro:KokoroSpeech":
                seen.add(profile)
                slugs = {voice.slug for voice in catalog.voices.values() if voice.provider == model.provider}
                voices: dict[str, Any] = model.serving.options["voices"]
                assert voices.keys() == slugs, model.id
                assert all("espeak" in voice for voice in voices.values())
                assert model.serving.fallback
    assert {"embedded", "cpu"} <= seen


# German, with which Kokoro was not trained, and who speaks which language


@pytest.fixture(scope="module")
def german(fetched: Fetched) -> Iterator[SpeechAdapter]:
    fetched("kokoro-82m")
    loaded: SpeechAdapter = models.load(CATALOG.speech["voxtral-mini-tts"])
    yield loaded
    loaded.close()


def test_the_network_knows_every_phoneme_that_it_is_given(fetched: Fetched) -> None:
    known = json.loads((fetched("kokoro-82m") / "vocab.json").read_text("utf-8"))["vocab"]
    for language, name in ESPEAK_NAMES.items():
        for text in (CATALOG.sentences[language], *((RARE, *SENTENCES) if language == "de" else ())):
            assert set("".join(runs(text, name))) <= known.keys(), language


async def test_the_mark_of_a_file_names_who_spoke(german: SpeechAdapter) -> None:
    for voice, language, ran in (
        (None, "de", "svox-pico"),
        ("bib-f-30", "de", "kokoro-82m"),
        (None, "en", "kokoro-82m"),
        (None, "nl", "espeak-ng"),
    ):
        block = await german.speak_whole(SpeechJob("Hallo.", language, voice, format="mp3"))
        assert read_provenance(block.data)["engine"] == ran


def test_men_are_lower_than_women_in_german(german: SpeechAdapter) -> None:
    women, men = (
        [height_hz(sound_of(german, SpeechJob(SENTENCES[2], "de", f"bib-{gender}-{age}"))) for age in ages]
        for gender, ages in (("f", (20, 30)), ("m", (35, 65)))
    )
    assert max(men) < min(women)
