"""Kokoro behind the engines of the embedded profile: with its real weights where something must be heard."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import configs
import models
from contract.catalog.base import DefaultSpeechRuntime
from contract.speech.engine import SpeechJob
from models.kokoro import network
from models.kokoro.converter import convert
from models.kokoro.network import CutNetwork, PublishedNetwork, load_network
from models.kokoro.phonemes import runs
from models.kokoro.speaker import ESPEAK_NAMES, LEVEL, SAMPLE_RATE, Kokoro
from models.kokoro.styles import KokoroVoice, Styles
from models.speech.adapter import SpeechAdapter
from models.speech.kokoro import FIRST_CHARS, KokoroSpeech
from models.weights.files import WeightsError
from tests.models.conftest import Fetched
from tests.models.hearing import GERMAN, Samples, pitch_of, sound_of, tone
from tests.models.refusals import changed
from tests.provenance import read_provenance

CATALOG = configs.load("embedded")
ENGINES = {model.provider: model for model in CATALOG.speech.values()}

SHORT = "Nobody knows the way."
LONG = "Nobody knows where the river goes, and nobody asks. " * 12
FEW_PHONEMES = 10
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


def test_sound_has_its_level_and_half_the_length_at_twice_the_speed(engine: KokoroSpeech) -> None:
    """More exactly than every engine has to: tests/models/speech/test_conformance.py."""
    usual, fast = (sound_of(engine, SpeechJob(SHORT, "en", speed=speed)) for speed in (1.0, 2.0))
    assert 0.8 < len(usual) / engine.sample_rate < 3
    assert LEVEL / 2 < usual[np.abs(usual) > 0.003].std() < 2 * LEVEL
    assert len(fast) == pytest.approx(len(usual) / 2, rel=0.2)


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


def test_a_stanza_that_kokoro_cannot_serve_is_refused(kokoro: Kokoro) -> None:
    unknown_style = {"voices": {"x": {"styles": {"af_nobody": 1}}}}
    for change, complaint in (
        ({"options": unknown_style}, "voice `x` of `qwen3-tts`: .* `af_nobody`"),
        ({"languages": ("en", "ko")}, "Kokoro does not speak `ko`"),
        ({"by_default": DefaultSpeechRuntime(runtime="svox-pico", languages=("de", "ru"))}, "Pico does not speak `ru`"),
        ({"options": {"voices": {}}}, r"`options\.voices`"),
    ):
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
        for text in (CATALOG.sentences[language], *((RARE, *GERMAN) if language == "de" else ())):
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
        [height_hz(sound_of(german, SpeechJob(GERMAN[2], "de", f"bib-{gender}-{age}"))) for age in ages]
        for gender, ages in (("f", (20, 30)), ("m", (35, 65)))
    )
    assert max(men) < min(women)


# The network, cut in two: as near to float32 as what is published, as long, and the same on every thread


Network = CutNetwork | PublishedNetwork

PUBLISHED, REFERENCE, CUT = "8 bits", "float32", "bfloat16"
WINDOW, HOP, BANDS, AUDIBLE_DB = 1024, 256, 80, 45

COMPARED = (
    ("Please hold the line.", "en", {"af_kore": 0.7, "af_heart": 0.3}),
    ("Where did you put the keys of the old house?", "en", {"bm_george": 0.5, "bm_lewis": 0.5}),
    ("Le train part à sept heures.", "fr", {"am_onyx": 0.5, "ff_siwis": 0.5}),
)


@pytest.fixture(scope="module")
def folder(fetched: Fetched) -> Path:
    return fetched("kokoro-82m")


@pytest.fixture(scope="module")
def networks(folder: Path) -> dict[str, Network]:
    return {
        PUBLISHED: PublishedNetwork(folder, 2),
        REFERENCE: CutNetwork(folder, 2, "float32"),
        CUT: CutNetwork(folder, 2, "bfloat16"),
    }


def said_by_all(
    kokoro: Kokoro, networks: dict[str, Network], text: str, language: str, voice: KokoroVoice
) -> dict[str, Samples]:
    """The sound of each network, by its name."""
    sounds = {}
    for name, way in networks.items():
        kokoro.network = way
        sounds[name] = kokoro.speak(text, language, voice)
    return sounds


def distance_db(sound: Samples, other: Samples) -> float:
    """The mean difference of the audible spectra of two sounds that are as long, but for some edge."""
    length = min(len(sound), len(other))
    first, second = mel_db(sound[:length]), mel_db(other[:length])
    audible = first.max(1) > first.max() - AUDIBLE_DB
    return float(np.abs(first - second)[audible].mean())


def mel_db(sound: Samples) -> Samples:
    """The power in decibels, float32 [windows, BANDS]."""
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(sound, WINDOW // 2), WINDOW)[::HOP] * np.hanning(WINDOW)
    power = np.abs(np.fft.rfft(windows)) ** 2
    mels = 2595 * np.log10(1 + np.fft.rfftfreq(WINDOW, 1 / SAMPLE_RATE) / 700)
    edges = np.linspace(2595 * np.log10(1 + 50 / 700), 2595 * np.log10(1 + 11_000 / 700), BANDS + 2)[:, None]
    rising = (mels - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - mels) / (edges[2:] - edges[1:-1])
    bands = power @ np.clip(np.minimum(rising, falling), 0, None).T
    return np.asarray(10 * np.log10(np.maximum(bands, bands.max() * 1e-7)), np.float32)


def inputs(folder: Path, phonemes: int) -> dict[str, np.ndarray]:
    return {
        "tokens": np.array([[0, *range(50, 50 + phonemes), 0]], np.int64),
        "style": Styles(folder / "styles").row({"af_heart": 1.0}, phonemes),
        "speed": np.array([1.0], np.float32),
    }


def test_the_sound_is_as_near_to_float32_as_what_is_published(folder: Path, networks: dict[str, Network]) -> None:
    kokoro = Kokoro(folder, 2)
    distances = []
    for text, language, styles in COMPARED:
        sounds = said_by_all(kokoro, networks, text, language, KokoroVoice(styles=styles))
        distances.append(distance_db(sounds[REFERENCE], sounds[CUT]))
        assert len(sounds[CUT]) == pytest.approx(len(sounds[PUBLISHED]), abs=480)  # silence is cut off by loudness
        assert sounds[CUT].std() == pytest.approx(sounds[REFERENCE].std(), rel=0.03)
        assert distance_db(sounds[PUBLISHED], sounds[CUT]) < 1.7
    assert np.mean(distances) <= 1.0
    assert max(distances) <= 1.7


def test_the_network_makes_as_many_samples_as_the_published_one(folder: Path, networks: dict[str, Network]) -> None:
    for phonemes in (1, 7, 30):
        lengths = {name: len(way.sound(inputs(folder, phonemes))) for name, way in networks.items()}
        assert len(set(lengths.values())) == 1, lengths


def test_two_at_once_sound_as_one_after_the_other(folder: Path, networks: dict[str, Network]) -> None:
    jobs = [inputs(folder, phonemes) for phonemes in (12, 20)]
    alone = [networks[CUT].sound(job) for job in jobs]
    with ThreadPoolExecutor(2) as threads:
        together = list(threads.map(networks[CUT].sound, jobs))
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one, other)


def test_its_threads_are_counted_and_use_no_processor_while_they_wait(networks: dict[str, Network]) -> None:
    options = networks[CUT]._front.get_session_options()
    assert options.intra_op_num_threads == 2
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"


def test_a_processor_without_bfloat16_runs_what_is_published(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for dtype, kind in (("bfloat16", CutNetwork), ("float32", PublishedNetwork)):
        monkeypatch.setattr(network, "fitting_dtype", lambda name, device, dtype=dtype: dtype)
        assert isinstance(load_network(folder, 2), kind)


def test_another_network_is_not_cut(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    value = helper.make_tensor_value_info("tokens", TensorProto.FLOAT, [1])
    output = helper.make_tensor_value_info("audio", TensorProto.FLOAT, [1])
    graph = helper.make_graph([helper.make_node("Sin", ["tokens"], ["audio"])], "another", [value], [output])
    onnx.save(helper.make_model(graph), source / "model.onnx")
    with pytest.raises(WeightsError, match="not the network that is known as Kokoro"):
        convert(source, tmp_path / "out")
