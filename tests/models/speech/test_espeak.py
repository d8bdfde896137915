"""espeak-ng: its library, its voices as the catalogue sets them, and what speaks one job with it."""

from __future__ import annotations

import gc
import io
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import av
import espeakng_loader
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import configs
import models
from contract.speech.engine import Clip, SpeechJob
from models.espeak import library
from models.espeak.library import SAMPLE_RATE, Manner
from models.espeak.voices import VoiceSettings, language_of, settings_for
from models.speech.adapter import SpeechAdapter
from models.speech.expressive import STYLES, ProsodyChange, styled
from models.speech.kokoro import espeak_synthesizer, median_pitch_hz
from tests.models import hearing
from tests.models.hearing import sound_of, tone
from tests.quick_speech import quick

CATALOG = configs.load("embedded")
ENGINES = {model.provider: quick(model) for model in CATALOG.speech.values()}

SENTENCE = "The quick brown fox runs along the river, and nobody knows where it will go."

HELLO = {
    "ar": "مرحبا، كيف حالك اليوم؟", "bg": "Здравей, как си днес?", "el": "Γεια σου, τι κάνεις σήμερα;",
    "hi": "नमस्ते, आज आप कैसे हैं?", "ja": "こんにちは、おげんきですか。", "ko": "안녕하세요, 오늘은 어떠세요?",
    "ru": "Привет, как дела сегодня?", "uk": "Привіт, як справи сьогодні?", "zh": "你好，你今天怎么样？",
}  # fmt: skip
"""A greeting in languages with scripts of their own; the others read a German one."""


pitch_of = partial(hearing.pitch_of, sample_rate=SAMPLE_RATE)


def presets() -> dict[str, VoiceSettings]:
    servings = [model.serving for model in ENGINES.values() if model.serving]
    listed = {slug: voice for serving in servings for slug, voice in serving.options["voices"].items()}
    return {slug: VoiceSettings.model_validate(voice) for slug, voice in listed.items()}


def spoken(text: str, voice: VoiceSettings, language: str = "en-us", speed: float = 1, style: str = "") -> np.ndarray:
    (sound,) = espeak_synthesizer(language, voice, speed).speak(text, styled(style))
    return np.asarray(sound())


THORSTEN = presets()["de-thorsten"]


# --- languages and voices ---


@pytest.mark.parametrize("language", sorted(CATALOG.spoken_languages))
def test_every_language_of_the_catalogue_is_spoken(language: str) -> None:
    sound = spoken(HELLO.get(language, "Hallo, wie geht es dir?"), THORSTEN, language_of(language))
    assert 0.7 < len(sound) / SAMPLE_RATE < 5
    assert pitch_of(sound).voiced_windows > 40
    assert language == "en" or language_of(language) != "en-us"


def test_an_unknown_language_is_none() -> None:
    assert not library.speaks("xx")
    assert library.speaks("cmn")


def test_men_are_lower_than_women_by_more_than_a_fifth() -> None:
    voices = presets()
    assert voices.keys() == CATALOG.voices.keys()
    variants = {file.name for file in Path(espeakng_loader.get_data_path(), "voices", "!v").iterdir()}
    assert {voice.variant for voice in voices.values()} <= variants
    pitches_hz: dict[str, list[float]] = {"m": [], "f": []}
    for slug, voice in voices.items():
        pitches_hz[CATALOG.voices[slug].gender].append(pitch_of(spoken(SENTENCE, voice)).f0_hz)
    assert 1.2 * max(pitches_hz["m"]) < min(pitches_hz["f"])


def test_voices_of_an_engine_differ() -> None:
    for provider, model in ENGINES.items():
        assert model.serving is not None
        manners = [str(voice) for voice in model.serving.options["voices"].values()]
        assert len(set(manners)) == len(manners), provider


@pytest.mark.parametrize("f0_hz", [80, 140, 154, 156, 240, 330])
def test_a_clip_is_imitated_in_its_pitch(f0_hz: float) -> None:
    pitch_hz = median_pitch_hz(tone(f0_hz))
    assert pitch_hz is not None
    sound = spoken(SENTENCE, settings_for(pitch_hz, "de"), "de")
    assert pitch_of(sound).f0_hz == pytest.approx(f0_hz, rel=0.04)


@pytest.mark.parametrize(("f0_hz", "pitch"), [(60, 0), (420, 99)])
def test_voices_out_of_reach_get_the_nearest(f0_hz: float, pitch: int) -> None:
    assert settings_for(f0_hz).pitch == pitch


@pytest.mark.parametrize("samples", [b"", b"\0\0", bytes(32_000)])
def test_a_clip_without_a_voice_has_no_pitch(samples: bytes) -> None:
    assert median_pitch_hz(Clip(samples, 16_000)) is None


# --- speed, styles ---


@pytest.mark.parametrize(("speed", "factor"), [(0.5, 2.0), (2.0, 0.5)])
def test_speed(speed: float, factor: float) -> None:
    once = len(spoken(SENTENCE, THORSTEN))
    assert len(spoken(SENTENCE, THORSTEN, speed=speed)) == pytest.approx(factor * once, rel=0.1)


@pytest.mark.parametrize(
    ("style", "longer", "higher"),
    [
        ("please speak very slowly", 1.33, 1), ("etwas schneller", 0.77, 1), ("Traurig!", 1.17, 0.85),
        ("cheerful and bright", 0.9, 1.3), ("a DEEP voice", 1, 0.83), ("like a pirate", 1, 1), ("", 1, 1),
    ],
)  # fmt: skip
def test_style(style: str, longer: float, higher: float) -> None:
    plain, changed = spoken(SENTENCE, THORSTEN), spoken(SENTENCE, THORSTEN, style=style)
    assert len(changed) == pytest.approx(longer * len(plain), rel=0.08)
    assert pitch_of(changed).f0_hz == pytest.approx(higher * pitch_of(plain).f0_hz, rel=0.08)


def test_words_of_styles_are_lower_case_and_belong_to_one() -> None:
    words = [word for beginnings in STYLES for word in beginnings.split("|")]
    assert len(set(words)) == len(words)
    assert all(word == word.casefold() for word in words)


# --- any text ---


NASTY = [
    "\0", "a\0b", "\x01100P hi", "\u0301\u0301", "\ud800", "\u202eabc\u202c", "<speak>hi<break time='9s'/></speak>",
    "[[h@'loU]]", "&amp;&#0;", "{\\x}", "😀👨‍👩‍👧🇩🇪", "a" * 4000, "\u0301" * 4000, "9" * 4000, "天" * 500,
    "مرحبا" * 800,    "﷽" * 50, "\ue000\uffff\U0010ffff", " " * 4000, "\n" * 4000, "-" * 4000,
]  # fmt: skip


@pytest.fixture(scope="module")
def engine() -> SpeechAdapter:
    """An engine of the catalogue whose languages are all spoken by espeak-ng, without its watermark."""
    loaded: SpeechAdapter = models.load(ENGINES["cosyvoice"].model_copy(update={"watermark": False}))
    return loaded


@pytest.mark.parametrize("text", NASTY, ids=lambda text: ascii(text[:12]))
@pytest.mark.parametrize("language", ["en", "zh", "ar"])
def test_any_text_is_spoken_or_skipped(engine: SpeechAdapter, text: str, language: str) -> None:
    parts = list(engine.render(SpeechJob(text, language)))
    assert parts[-1].characters == len(text)
    assert all(np.isfinite(part.samples).all() for part in parts)
    assert sum(len(part.samples) for part in parts)


@settings(max_examples=60, deadline=None)
@given(
    text=st.text(min_size=1, max_size=60) | st.text(st.characters(max_codepoint=0x600), min_size=1, max_size=60),
    language=st.sampled_from((*ENGINES["supertonic"].languages, "zh", "xx", "")),
)
@example(text="ნ", language="en")
def test_any_text_in_any_language(engine: SpeechAdapter, text: str, language: str) -> None:
    parts = list(engine.render(SpeechJob(text, language)))
    assert parts[-1].characters == len(text)
    assert sum(len(part.samples) for part in parts) / engine.sample_rate < 5 + 1.1 * len(text)


def test_markup_is_data() -> None:
    sound = spoken("<break time='9s'/>", THORSTEN)
    assert len(sound) / SAMPLE_RATE < 5
    assert pitch_of(sound).voiced_windows > 80


def test_control_characters_are_not_commands() -> None:
    plain, commanded = pitch_of(spoken(SENTENCE, THORSTEN)), pitch_of(spoken(f"\x0199P {SENTENCE}", THORSTEN))
    assert commanded.f0_hz == pytest.approx(plain.f0_hz, rel=0.1)


# --- one library for all threads of a process ---


def test_sixteen_threads_get_what_one_gets() -> None:
    voices = list(presets().values())
    orders = [(f"{SENTENCE} " * (1 + at % 3), voices[at % len(voices)]) for at in range(16)]
    alone = [spoken(*order) for order in orders]
    with ThreadPoolExecutor(16) as threads:
        together = list(threads.map(lambda order: spoken(*order), orders))
    for one, other in zip(alone, together, strict=True):
        assert len(other) == pytest.approx(len(one), rel=0.02)
        assert pitch_of(other).f0_hz == pytest.approx(pitch_of(one).f0_hz, rel=0.03)


def test_memory_does_not_grow() -> None:
    voices = [f"{language}+m3" for language in ("en-us", "de", "ko", "fr")]

    def speak(times: int) -> int:
        for at in range(times):
            library.speak(f"{SENTENCE} {at % 4}", Manner(voices[at % 4]))
        gc.collect()
        return resident_bytes()

    before = speak(60)
    assert speak(500) - before < 8 << 20


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_nothing_is_loaded_before_an_engine_is() -> None:
    """A process that has it and forks leaves its child a library that may hang."""
    script = (
        "import configs, models.speech.kokoro, models.espeak.library as l;"
        "configs.load('embedded');"
        "assert not l._library.cache_info().currsize; assert 'espeakng_loader' not in __import__('sys').modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


# --- what every engine does with sound ---


@pytest.mark.parametrize("format", ENGINES["cosyvoice"].formats)
async def test_files_hold_what_was_rendered(engine: SpeechAdapter, format: str) -> None:
    job = replace(SpeechJob(SENTENCE, "en"), format=format)
    block = await engine.speak_whole(job)
    with av.open(io.BytesIO(block.data)) as file:
        (stream,) = file.streams.audio
        assert stream.channels == 1
        assert stream.rate == (48_000 if format == "opus" else engine.sample_rate)
        sounds = [frame.to_ndarray().ravel() for frame in file.decode(audio=0)]
    samples = np.concatenate(sounds) / (1 if sounds[0].dtype == np.float32 else np.iinfo(sounds[0].dtype).max)
    assert len(samples) / stream.rate == pytest.approx(block.seconds, abs=0.15)
    rendered = pitch_of(sound_of(engine, job), sample_rate=engine.sample_rate)
    assert pitch_of(samples, sample_rate=stream.rate).f0_hz == pytest.approx(rendered.f0_hz, rel=0.03)
    assert block.characters == len(SENTENCE)


def test_duration_grows_with_the_text_and_every_character_is_counted(engine: SpeechAdapter) -> None:
    parts = list(engine.render(SpeechJob(f"{SENTENCE} {SENTENCE}  And more.", "en")))
    assert [part.characters for part in parts] == [len(SENTENCE) + 1, 2 * len(SENTENCE) + 3, 2 * len(SENTENCE) + 12]
    once = sound_of(engine, SpeechJob(SENTENCE, "en"))
    assert len(parts[0].samples) == pytest.approx(len(once), rel=0.02)
    assert (once.dtype, once.ndim) == (np.float32, 1)
    assert 0.1 < np.abs(once).max() <= 1
    assert len(once) / engine.sample_rate == pytest.approx(4.8, abs=1)


async def test_cosyvoice_is_watermarked_and_qwen_is_not() -> None:
    from audio.watermark import THRESHOLD, Watermark

    watermark = Watermark()
    for provider, is_marked in (("cosyvoice", True), ("qwen", False)):
        block = await models.load(ENGINES[provider]).speak_whole(SpeechJob(SENTENCE, "en"))
        with av.open(io.BytesIO(block.data)) as file:
            sound = np.concatenate([frame.to_ndarray().ravel() for frame in file.decode(audio=0)]) / 32_768
        assert (watermark.detect(sound.astype(np.float32), 24_000) > THRESHOLD) is is_marked


def test_changes_of_prosody_add_up() -> None:
    assert ProsodyChange(rate=2, pitch=3).then(ProsodyChange(rate=2, range=1)) == ProsodyChange(4, 3, 1, 1)
