"""espeak-ng behind the four engines of the catalogue, with the settings that their voices have elsewhere."""

from __future__ import annotations

import gc
import io
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import av
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import configs
import models
from audio.pitch import Pitch, measure
from contract.catalog import SpeechModel
from contract.errors import ApiError
from contract.speech.engine import Clip, SpeechJob
from models.espeak import library
from models.espeak.voices import settings_for
from models.speech.adapter import SpeechAdapter
from models.speech.espeak import Espeak
from models.speech.manners import STYLES
from tests.quick_speech import quick

CATALOG = configs.load("embedded")
ENGINES = {model.provider: quick(model) for model in CATALOG.speech.values()}
LANGUAGES = [(provider, language) for provider, model in ENGINES.items() for language in model.languages]

SENTENCE = "The quick brown fox runs along the river, and nobody knows where it will go."

HELLO = {
    "ar": "مرحبا، كيف حالك اليوم؟", "bg": "Здравей, как си днес?", "el": "Γεια σου, τι κάνεις σήμερα;",
    "hi": "नमस्ते, आज आप कैसे हैं?", "ja": "こんにちは、おげんきですか。", "ko": "안녕하세요, 오늘은 어떠세요?",
    "ru": "Привет, как дела сегодня?", "uk": "Привіт, як справи сьогодні?", "zh": "你好，你今天怎么样？",
}  # fmt: skip
"""A greeting in languages with scripts of their own; the others read a German one."""


@pytest.fixture(scope="module")
def engine_of() -> Callable[[str], Espeak]:
    """Engines by provider. Their watermark, which has tests of its own, is left out: it takes longer than they do."""
    loaded: dict[str, Espeak] = {}

    def engine_of(provider: str) -> Espeak:
        if provider not in loaded:
            loaded[provider] = models.load(ENGINES[provider].model_copy(update={"watermark": False}))
        return loaded[provider]

    return engine_of


def sound_of(engine: SpeechAdapter, job: SpeechJob) -> np.ndarray:
    return np.concatenate([part.samples for part in engine.render(job)])


def pitch_of(engine: SpeechAdapter, job: SpeechJob) -> Pitch:
    pitch = measure(sound_of(engine, job), engine.sample_rate)
    assert pitch is not None
    return pitch


def tone(f0_hz: float, sample_rate: int = 16_000, seconds: float = 1.0) -> Clip:
    times = np.arange(int(seconds * sample_rate)) / sample_rate
    saw = 2 * (f0_hz * times % 1) - 1
    return Clip((saw * 8000).astype("<i2").tobytes(), sample_rate)


@pytest.mark.anyio
@pytest.mark.parametrize(("provider", "format"), [(p, f) for p, model in ENGINES.items() for f in model.formats])
async def test_files_hold_what_was_rendered(engine_of: Callable, provider: str, format: str) -> None:
    engine = engine_of(provider)
    spoken = replace(SpeechJob(SENTENCE, "en"), format=format)
    block = await engine.speak_whole(spoken)
    with av.open(io.BytesIO(block.data)) as file:
        (stream,) = file.streams.audio
        assert stream.channels == 1
        assert stream.rate == (48_000 if format == "opus" else ENGINES[provider].sample_rate)
        sounds = [frame.to_ndarray().ravel() for frame in file.decode(audio=0)]
    samples = np.concatenate(sounds) / (1 if sounds[0].dtype == np.float32 else np.iinfo(sounds[0].dtype).max)
    assert len(samples) / stream.rate == pytest.approx(block.seconds, abs=0.15)
    heard, meant = measure(samples, stream.rate), pitch_of(engine, spoken)
    assert heard is not None
    assert heard.f0_hz == pytest.approx(meant.f0_hz, rel=0.03)
    assert block.characters == len(SENTENCE)


@pytest.mark.anyio
async def test_cosyvoice_is_watermarked_and_qwen_is_not() -> None:
    from audio.watermark import THRESHOLD, Watermark

    watermark = Watermark()
    for provider, marked in (("cosyvoice", True), ("qwen", False)):
        block = await models.load(ENGINES[provider]).speak_whole(SpeechJob(SENTENCE, "en"))
        with av.open(io.BytesIO(block.data)) as file:
            sound = np.concatenate([frame.to_ndarray().ravel() for frame in file.decode(audio=0)]) / 32_768
        assert (watermark.detect(sound.astype(np.float32), 24_000) > THRESHOLD) is marked


@pytest.mark.parametrize(("provider", "language"), LANGUAGES)
def test_every_engine_speaks_each_of_its_languages(engine_of: Callable, provider: str, language: str) -> None:
    engine = engine_of(provider)
    text = HELLO.get(language, "Hallo, wie geht es dir?")
    sound = sound_of(engine, SpeechJob(text, language))
    assert 0.7 < len(sound) / engine.sample_rate < 5
    pitch = measure(sound, engine.sample_rate)
    assert pitch is not None
    assert pitch.voiced_windows > 40


@pytest.mark.parametrize("provider", ENGINES)
def test_duration_grows_with_the_text_and_every_character_is_counted(engine_of: Callable, provider: str) -> None:
    engine = engine_of(provider)
    parts = list(engine.render(SpeechJob(f"{SENTENCE} {SENTENCE}  And more.", "en")))
    assert [part.characters for part in parts] == [len(SENTENCE) + 1, 2 * len(SENTENCE) + 3, 2 * len(SENTENCE) + 12]
    once = sound_of(engine, SpeechJob(SENTENCE, "en"))
    assert len(parts[0].samples) == pytest.approx(len(once), rel=0.02)
    assert once.dtype == np.float32
    assert once.ndim == 1
    assert 0.1 < np.abs(once).max() <= 1
    assert len(once) / engine.sample_rate == pytest.approx(4.8, abs=1)


@pytest.mark.parametrize(("speed", "factor"), [(0.5, 2.0), (2.0, 0.5)])
def test_speed(engine_of: Callable, speed: float, factor: float) -> None:
    engine = engine_of("cosyvoice")
    once = len(sound_of(engine, SpeechJob(SENTENCE, "en")))
    assert len(sound_of(engine, SpeechJob(SENTENCE, "en", speed=speed))) == pytest.approx(factor * once, rel=0.1)


def test_men_are_lower_than_women_by_more_than_a_fifth(engine_of: Callable) -> None:
    heights: dict[str, list[float]] = {"m": [], "f": []}
    for voice in CATALOG.voices.values():
        spoken = SpeechJob(SENTENCE, "en", voice.slug)
        heights[voice.gender].append(pitch_of(engine_of(voice.provider), spoken).f0_hz)
    assert len(heights["m"]) + len(heights["f"]) == len(CATALOG.voices)
    assert 1.2 * max(heights["m"]) < min(heights["f"])


def test_voices_of_an_engine_differ(engine_of: Callable) -> None:
    for provider, model in ENGINES.items():
        assert model.serving is not None
        manners = [str(said) for said in model.serving.options["voices"].values()]
        assert len(set(manners)) == len(manners), provider


def test_default_voice_is_the_first(engine_of: Callable) -> None:
    engine = engine_of("mistral")
    unnamed = pitch_of(engine, SpeechJob(SENTENCE, "de"))
    assert pitch_of(engine, SpeechJob(SENTENCE, "de", "bib-f-30")).f0_hz == pytest.approx(unnamed.f0_hz, rel=0.02)


def test_voice_of_another_engine_is_refused(engine_of: Callable) -> None:
    with pytest.raises(ApiError) as caught:
        next(engine_of("qwen").render(SpeechJob("Hi.", "en", "M1")))
    assert caught.value.fault.name == "UNKNOWN_VOICE"


def test_marks_of_others_are_read_as_text(engine_of: Callable) -> None:
    engine = engine_of("qwen")
    assert len(sound_of(engine, SpeechJob("Hi <breath> you.", "en"))) > 1.2 * len(
        sound_of(engine, SpeechJob("Hi breath you.", "en"))
    )


@pytest.mark.parametrize(
    ("style", "longer", "higher"),
    [
        ("please speak very slowly", 1.33, 1), ("etwas schneller", 0.77, 1), ("Traurig!", 1.17, 0.85),
        ("cheerful and bright", 0.9, 1.3), ("a DEEP voice", 1, 0.83), ("like a pirate", 1, 1), ("", 1, 1),
    ],
)  # fmt: skip
def test_style(engine_of: Callable, style: str, longer: float, higher: float) -> None:
    engine = engine_of("cosyvoice")
    plain, styled = SpeechJob(SENTENCE, "en"), SpeechJob(SENTENCE, "en", style=style)
    assert len(sound_of(engine, styled)) == pytest.approx(longer * len(sound_of(engine, plain)), rel=0.08)
    assert pitch_of(engine, styled).f0_hz == pytest.approx(higher * pitch_of(engine, plain).f0_hz, rel=0.08)


def test_words_of_styles_are_lower_case_and_belong_to_one() -> None:
    words = [word for beginnings in STYLES for word in beginnings.split("|")]
    assert len(set(words)) == len(words)
    assert all(word == word.casefold() for word in words)


@pytest.mark.parametrize("f0_hz", [80, 110, 140, 154, 156, 190, 240, 330])
def test_a_clip_is_imitated_in_its_pitch(engine_of: Callable, f0_hz: float) -> None:
    spoken = pitch_of(engine_of("cosyvoice"), SpeechJob(SENTENCE, "de", clip=tone(f0_hz)))
    assert spoken.f0_hz == pytest.approx(f0_hz, rel=0.04)


@pytest.mark.parametrize(("f0_hz", "pitch"), [(60, 0), (420, 99)])
def test_voices_out_of_reach_get_the_nearest(f0_hz: float, pitch: int) -> None:
    assert settings_for(f0_hz).pitch == pitch


@pytest.mark.parametrize("samples", [b"", b"\0\0", bytes(32_000)])
def test_a_clip_without_a_voice_leaves_the_engine_its_own(engine_of: Callable, samples: bytes) -> None:
    engine = engine_of("cosyvoice")
    spoken = pitch_of(engine, SpeechJob(SENTENCE, "en", clip=Clip(samples, 16_000)))
    assert spoken.f0_hz == pytest.approx(pitch_of(engine, SpeechJob(SENTENCE, "en", "de-thorsten")).f0_hz, rel=0.03)


def test_sixteen_threads_get_what_one_gets(engine_of: Callable) -> None:
    slugs = sorted(ENGINES["supertonic"].serving.options["voices"]) if ENGINES["supertonic"].serving else []
    engine = engine_of("supertonic")
    orders = [SpeechJob(f"{SENTENCE} " * (1 + at % 3), "en", slugs[at % 10]) for at in range(16)]
    alone = [pitch_of(engine, order) for order in orders]
    lengths = [len(sound_of(engine, order)) for order in orders]
    with ThreadPoolExecutor(16) as threads:
        together = list(threads.map(lambda order: sound_of(engine, order), orders))
    for one, length, sound in zip(alone, lengths, together, strict=True):
        assert len(sound) == pytest.approx(length, rel=0.02)
        pitch = measure(sound, engine.sample_rate)
        assert pitch is not None
        assert pitch.f0_hz == pytest.approx(one.f0_hz, rel=0.03)


def test_a_long_text_does_not_hold_others_up(engine_of: Callable) -> None:
    engine = engine_of("cosyvoice")
    long = engine.render(SpeechJob(SENTENCE * 40, "en"))
    next(long)
    assert len(sound_of(engine, SpeechJob("Hi.", "en")))  # while the long one is under way
    assert next(long).characters < 80 * len(SENTENCE) / 2
    long.close()


NASTY = [
    "\0", "a\0b", "\x01100P hi", "\u0301\u0301", "\ud800", "\u202eabc\u202c", "<speak>hi<break time='9s'/></speak>",
    "[[h@'loU]]", "&amp;&#0;", "{\\x}", "😀👨‍👩‍👧🇩🇪", "a" * 4000, "\u0301" * 4000, "9" * 4000, "天" * 500,
    "مرحبا" * 800,    "﷽" * 50, "\ue000\uffff\U0010ffff", " " * 4000, "\n" * 4000, "-" * 4000,
]  # fmt: skip


@pytest.mark.parametrize("text", NASTY, ids=lambda text: ascii(text[:12]))
@pytest.mark.parametrize("language", ["en", "zh", "ar"])
def test_any_text_is_spoken_or_skipped(engine_of: Callable, text: str, language: str) -> None:
    parts = list(engine_of("qwen").render(SpeechJob(text, language)))
    assert parts[-1].characters == len(text)
    assert all(np.isfinite(part.samples).all() for part in parts)
    assert sum(len(part.samples) for part in parts)


@settings(max_examples=60, deadline=None)
@given(
    text=st.text(min_size=1, max_size=60) | st.text(st.characters(max_codepoint=0x600), min_size=1, max_size=60),
    language=st.sampled_from((*ENGINES["supertonic"].languages, "zh", "xx", "")),
)
@example(text="ნ", language="en")
def test_any_text_in_any_language(engine_of: Callable, text: str, language: str) -> None:
    engine = engine_of("cosyvoice")
    parts = list(engine.render(SpeechJob(text, language)))
    assert parts[-1].characters == len(text)
    assert sum(len(part.samples) for part in parts) / engine.sample_rate < 5 + 1.1 * len(text)


def test_markup_is_data(engine_of: Callable) -> None:
    """A pause of nine seconds that somebody writes is read out, not made."""
    sound = sound_of(engine_of("qwen"), SpeechJob("<break time='9s'/>", "en"))
    assert len(sound) / 24_000 < 5
    assert (pitch := measure(sound, 24_000)) is not None
    assert pitch.voiced_windows > 80


def test_control_characters_are_not_commands(engine_of: Callable) -> None:
    engine = engine_of("qwen")
    plain = pitch_of(engine, SpeechJob(SENTENCE, "en"))
    commanded = pitch_of(engine, SpeechJob(f"\x0199P {SENTENCE}", "en"))
    assert commanded.f0_hz == pytest.approx(plain.f0_hz, rel=0.1)


def test_memory_does_not_grow(engine_of: Callable) -> None:
    engine = engine_of("supertonic")
    utterances = [SpeechJob(f"{SENTENCE} {at}", language) for at, language in enumerate(("en", "de", "ko", "fr"))]

    def speak(times: int) -> int:
        for at in range(times):
            sound_of(engine, utterances[at % 4])
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
        "import configs, models.speech.espeak, models.speech.kokoro, models.espeak.library as l;"
        "configs.load('embedded');"
        "assert not l._library.cache_info().currsize; assert 'espeakng_loader' not in __import__('sys').modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_stanza_that_espeak_cannot_serve_is_refused() -> None:
    with pytest.raises(ValueError, match="does not speak `xx`"):
        models.load(ENGINES["qwen"].model_copy(update={"languages": ("xx",)}))


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ({"variant": "nobody"}, "voice `x` of `qwen3-tts`: espeak-ng has no variant `nobody`"),
        ({"variant": "f1", "pitch": 100}, r"`options\.voices\.x\.pitch`"),
        ({}, r"`options\.voices\.x\.variant`"),
    ],
)
def test_voice_settings_that_are_wrong_are_refused(said: dict, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        models.load(with_voices(ENGINES["qwen"], {"x": said}))


def with_voices(model: SpeechModel, voices: dict) -> SpeechModel:
    assert model.serving is not None
    serving = model.serving.model_copy(update={"options": {"voices": voices}})
    return model.model_copy(update={"serving": serving})


def test_unknown_languages_are_told() -> None:
    assert not library.speaks("xx")
    assert library.speaks("cmn")
