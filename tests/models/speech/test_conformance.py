"""The protocol of speech engines: the same promises for each way in which an adapter speaks."""

import gc
import os
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import configs
import models
from contract.catalog.base import DefaultSpeechRuntime
from contract.errors import ApiError
from contract.speech.engine import SpeechJob
from models import pico
from models.kokoro.network import load_network
from models.speech.adapter import SpeechAdapter
from models.weights.store import ensure
from tests.models.hearing import pitch_of, sound_of
from tests.models.refusals import changed, loaded_offline, refused
from tests.quick_speech import quick
from tests.twins import supertonic

CATALOG = configs.load("embedded")
SENTENCE = "Nobody knows where the river will go."
NASTY = [
    "\0", "a\0b", "\x01100P hi", "\x1b\x01P", "\u0301\u0301", "\ud800", "\u202eabc\u202c", "<speak>hi</speak>", "{\\x}",
    "[[h@'loU]]", "&amp;&#0;", "&lt;p&gt;&#60;", "😀👨‍👩‍👧🇩🇪", "\ue000\uffff\U0010ffff", "天" * 500,
    "مرحبا" * 800, "﷽" * 50,
    *(unit * 4000 for unit in ("a", "\u0301", "9", "ä", " ", "\n", "-", "!", "½")), "word " * 800, "ẞß" * 100,
    "!?" * 100, "http://" * 28, "%$" * 100, "1." * 100, "😀" * 500,
]  # fmt: skip


class Way(NamedTuple):
    """An engine, its languages and voices here, and how long a text it is given at most, in characters.

    Attributes:
        is_exact: the same text is always the same sound.
        repeats: how often a sentence is spoken before memory is looked at again.
    """

    engine: SpeechAdapter
    languages: tuple[str, ...]
    voices: tuple[str | None, ...]
    most_chars: int = 4000
    is_exact: bool = True
    repeats: int = 60

    def job(self, text: str = SENTENCE, **fields: Any) -> SpeechJob:
        return SpeechJob(text, self.languages[0], **fields)

    def sound(self, text: str = SENTENCE, **fields: Any) -> np.ndarray:
        return sound_of(self.engine, self.job(text, **fields))

    def pitch_hz(self, sound: np.ndarray) -> float:
        return pitch_of(sound, self.engine.sample_rate).f0_hz


class HummingNetwork:
    """Kokoro's true network for short runs; a hum stands for longer ones, which take seconds."""

    most_phonemes = 16

    def __init__(self, folder: Path, threads: int | None) -> None:
        self.real = load_network(folder, threads)

    def sound(self, inputs: dict[str, np.ndarray]) -> np.ndarray:
        count = inputs["tokens"].shape[1]
        is_short = count <= self.most_phonemes
        return self.real.sound(inputs) if is_short else np.sin(np.arange(600 * count) / 20, dtype="f4")


def started(name: str, home: Path, patch: pytest.MonkeyPatch) -> Way:
    if name == "supertonic":
        supertonic.make(home / "twins" / "supertonic-3")
        model = configs.load("twins").speech["supertonic-3"]
        return Way(loaded_offline(model, home), ("en", *model.languages), tuple(supertonic.VOICES_HZ), 400, False)
    model = CATALOG.speech["cosyvoice-3"].model_copy(update={"watermark": False})  # which takes longer than the engine
    voices = tuple(slug for slug, voice in CATALOG.voices.items() if voice.provider == model.provider)
    if name == "espeak":
        return Way(models.load(quick(model)), ("en", "zh", "ar"), voices, is_exact=False, repeats=400)
    ensure("kokoro-82m", offline=True)
    patch.setattr("models.kokoro.speaker.load_network", HummingNetwork)
    if name == "kokoro":
        return Way(models.load(model), ("en", "hi", "zh"), voices, is_exact=False)  # espeak-ng speaks Chinese
    languages = tuple(pico.VOICES)
    model = changed(model, by_default=DefaultSpeechRuntime(runtime="svox-pico", languages=languages))
    return Way(models.load(model.model_copy(update={"languages": languages})), languages, (None,), 200)


@pytest.fixture(
    scope="module",
    params=["espeak", *(pytest.param(name, marks=pytest.mark.engines) for name in ("pico", "kokoro", "supertonic"))],
)
def way(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Way]:
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        way = started(request.param, tmp_path_factory.mktemp("home"), patch)
        stack.callback(way.engine.close)
        yield way


speech_alone = pytest.mark.parametrize(
    "way", ["espeak", *(pytest.param(name, marks=pytest.mark.engines) for name in ("pico", "kokoro"))], indirect=True
)


@pytest.fixture
def no_hum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HummingNetwork, "most_phonemes", 1000)


def fault_of(way: Way, text: str, language: str, most_s: float) -> str:
    """The promise about any text that does not hold; empty where all hold. A letter without a sound may be refused."""
    try:
        parts = list(way.engine.render(SpeechJob(text, language)))
    except ApiError as error:
        return "" if any(unicodedata.category(char)[0] in "LN" for char in text) else str(error)
    samples = np.concatenate([part.samples for part in parts])
    promises = {
        "every character is counted": (ends := [part.characters for part in parts])[-1] == len(text),
        "in order": ends == sorted(ends),
        "there is sound": len(samples),
        "of float32, and finite": samples.dtype == np.float32 and np.isfinite(samples).all(),
        "not louder than one": np.abs(samples).max(initial=0) <= 1,
        "and it ends": len(samples) / way.engine.sample_rate < most_s,
    }
    return ", ".join(promise for promise, holds in promises.items() if not holds)


def test_any_text_is_spoken_or_skipped(way: Way) -> None:
    orders = [(text[: way.most_chars], language) for text in NASTY for language in way.languages[:3]]
    faults = {(text[:12], language): fault_of(way, text, language, np.inf) for text, language in orders}
    assert not {order: fault for order, fault in faults.items() if fault}


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text(min_size=1, max_size=60) | st.text(st.characters(max_codepoint=0x600), min_size=1, max_size=120),
    language=st.integers(0, 50),
)
@example(text="ნ", language=0)
@example(text="½" * 100, language=0)
def test_any_text_in_any_language(way: Way, text: str, language: int) -> None:
    languages = [*way.languages, *way.engine.model.languages, "zh", "xx", ""]
    assert not fault_of(way, text, languages[language % len(languages)], 5 + 1.1 * len(text))


@speech_alone
@pytest.mark.usefixtures("no_hum")
def test_a_sentence_is_as_long_and_as_loud_as_speech_is(way: Way) -> None:
    for language in way.languages[:5]:
        sound = sound_of(way.engine, SpeechJob("Maria canta una nota.", language))
        assert 0.8 < len(sound) / way.engine.sample_rate < 4, language
        assert 0.05 < sound[np.abs(sound) > 0.003].std() < 0.3, language
    assert len(way.sound(f"{SENTENCE} {SENTENCE}")) > 1.6 * len(way.sound())


@speech_alone
@pytest.mark.usefixtures("no_hum")
def test_markup_and_control_characters_are_data(way: Way) -> None:
    sound = way.sound("<break time='9s'/>")
    assert len(sound) / way.engine.sample_rate < 6
    assert pitch_of(sound, way.engine.sample_rate).voiced_windows > 80
    plain_hz = way.pitch_hz(way.sound())
    for command in ("\x0199P ", "<pitch level='200'>"):
        assert way.pitch_hz(way.sound(command + SENTENCE)) == pytest.approx(plain_hz, rel=0.1), command


@speech_alone
@pytest.mark.usefixtures("no_hum")
def test_styles_and_speed_of_a_job_are_heard(way: Way) -> None:
    usual, deep = way.sound(), way.sound(style="a deep, quiet voice")
    assert way.pitch_hz(deep) < 0.95 * way.pitch_hz(usual)
    assert deep.std() < 0.7 * usual.std()
    assert len(way.sound(speed=2.0)) == pytest.approx(len(usual) / 2, rel=0.3)
    assert len(way.sound(speed=0.5)) == pytest.approx(len(usual) * 2, rel=0.2)


def test_sixteen_threads_get_what_one_gets(way: Way) -> None:
    """No job hears of those before or beside it, nor has their voice."""
    orders = [
        SpeechJob(
            f"{SENTENCE} " * (1 + at % 2),
            way.languages[at % 3],
            way.voices[at % len(way.voices)],
            owner=f"org-{at % 2}",
        )
        for at in range(16)
    ]
    alone = [sound_of(way.engine, order) for order in orders]
    with ThreadPoolExecutor(16) as threads:
        together = list(threads.map(lambda order: sound_of(way.engine, order), orders))
    for one, other in zip(alone, together, strict=True):
        assert not way.is_exact or np.array_equal(one, other)
        assert len(other) == pytest.approx(len(one), rel=0.02)
        assert way.pitch_hz(other) == pytest.approx(way.pitch_hz(one), rel=0.03)


def test_neither_memory_nor_files_are_kept(way: Way) -> None:
    def speak(times: int) -> int:
        for at in range(times):
            list(way.engine.render(SpeechJob(SENTENCE, way.languages[at % len(way.languages)])))
        gc.collect()
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096

    before, files = speak(way.repeats // 3), len(os.listdir("/proc/self/fd"))
    assert speak(way.repeats) - before < 8 << 20
    assert len(os.listdir("/proc/self/fd")) == files


def test_an_unknown_voice_is_refused(way: Way) -> None:
    with refused("UNKNOWN_VOICE"):
        next(way.engine.render(SpeechJob("Hi.", "en", "de-nobody")))


def test_nothing_is_loaded_before_an_engine_is() -> None:
    """A process that has a library and forks leaves its child one that may hang."""
    script = (
        "import configs, sys, models.speech.kokoro, models.espeak.library, models.speech.supertonic\n"
        "configs.load('embedded')\n"
        "assert not {'espeakng_loader', 'py_nanotts', 'onnxruntime', 'supertonic', 'torch'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
