"""espeak-ng and Pico: what each does alone, beside the promises of every engine."""

from __future__ import annotations

import io
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
from models import pico
from models.espeak import library
from models.espeak.library import SAMPLE_RATE
from models.espeak.voices import VoiceSettings, language_of, settings_for
from models.speech.expressive import STYLES, ProsodyChange, styled
from models.speech.kokoro import espeak_synthesizer, median_pitch_hz
from tests.models import hearing
from tests.models.hearing import tone
from tests.quick_speech import quick

CATALOG = configs.load("embedded")
ENGINES = {model.provider: quick(model) for model in CATALOG.speech.values()}

SENTENCE = "The quick brown fox runs along the river, and nobody knows where it will go."
GERMAN = "Der Zug nach Hamburg fährt heute von Gleis neun ab, und niemand weiß, wohin er fährt."

HELLO = {
    "ar": "مرحبا، كيف حالك اليوم؟", "bg": "Здравей, как си днес?", "el": "Γεια σου, τι κάνεις σήμερα;",
    "hi": "नमस्ते, आज आप कैसे हैं?", "ja": "こんにちは、おげんきですか。", "ko": "안녕하세요, 오늘은 어떠세요?",
    "ru": "Привет, как дела сегодня?", "uk": "Привіт, як справи сьогодні?", "zh": "你好，你今天怎么样？",
}  # fmt: skip
"""A greeting in languages with scripts of their own; the others read a German one."""


pitch_of = partial(hearing.pitch_of, sample_rate=SAMPLE_RATE)


def presets() -> dict[str, dict[str, VoiceSettings]]:
    listed = {provider: model.serving.options["voices"] for provider, model in ENGINES.items() if model.serving}
    return {
        provider: {slug: VoiceSettings.model_validate(voice) for slug, voice in voices.items()}
        for provider, voices in listed.items()
    }


def spoken(text: str, voice: VoiceSettings, language: str = "en-us", speed: float = 1, style: str = "") -> np.ndarray:
    (sound,) = espeak_synthesizer(language, voice, speed).speak(text, styled(style))
    return np.asarray(sound())


THORSTEN = presets()["cosyvoice"]["de-thorsten"]


# espeak-ng


def test_every_language_of_the_catalogue_is_spoken_and_an_unknown_one_is_none() -> None:
    for language in sorted(CATALOG.spoken_languages):
        sound = spoken(HELLO.get(language, "Hallo, wie geht es dir?"), THORSTEN, language_of(language))
        assert 0.7 < len(sound) / SAMPLE_RATE < 5, language
        assert pitch_of(sound).voiced_windows > 40, language
        assert language == "en" or language_of(language) != "en-us"
    assert (library.speaks("cmn"), library.speaks("xx")) == (True, False)


def test_voices_of_an_engine_differ_and_men_are_lower_than_women_by_more_than_a_fifth() -> None:
    variants = {file.name for file in Path(espeakng_loader.get_data_path(), "voices", "!v").iterdir()}
    pitches_hz: dict[str, list[float]] = {"m": [], "f": []}
    slugs = set()
    for provider, voices in presets().items():
        assert len(set(map(str, voices.values()))) == len(voices), provider
        assert {voice.variant for voice in voices.values()} <= variants
        slugs |= voices.keys()
        for slug, voice in voices.items():
            pitches_hz[CATALOG.voices[slug].gender].append(pitch_of(spoken(SENTENCE, voice)).f0_hz)
    assert slugs == CATALOG.voices.keys()
    assert 1.2 * max(pitches_hz["m"]) < min(pitches_hz["f"])


def test_a_clip_is_imitated_in_its_pitch_and_out_of_reach_by_the_nearest() -> None:
    for f0_hz in (80, 140, 154, 156, 240, 330):
        pitch_hz = median_pitch_hz(tone(f0_hz))
        assert pitch_hz is not None
        sound = spoken(SENTENCE, settings_for(pitch_hz, "de"), "de")
        assert pitch_of(sound).f0_hz == pytest.approx(f0_hz, rel=0.04)
    assert [settings_for(f0_hz).pitch for f0_hz in (60, 420)] == [0, 99]
    for silence in (b"", b"\0\0", bytes(32_000)):
        assert median_pitch_hz(Clip(silence, 16_000)) is None


@pytest.mark.parametrize(
    ("style", "speed", "longer", "higher"),
    [
        ("please speak very slowly", 1, 1.33, 1), ("etwas schneller", 1, 0.77, 1), ("Traurig!", 1, 1.17, 0.85),
        ("cheerful and bright", 1, 0.9, 1.3), ("a DEEP voice", 1, 1, 0.83), ("like a pirate", 1, 1, 1), ("", 1, 1, 1),
        ("", 0.5, 2, 1), ("", 2, 0.5, 1),
    ],
)  # fmt: skip
def test_style_and_speed(style: str, speed: float, longer: float, higher: float) -> None:
    plain, changed = spoken(SENTENCE, THORSTEN), spoken(SENTENCE, THORSTEN, speed=speed, style=style)
    assert len(changed) == pytest.approx(longer * len(plain), rel=0.08)
    assert pitch_of(changed).f0_hz == pytest.approx(higher * pitch_of(plain).f0_hz, rel=0.08)


def test_words_of_styles_are_lower_case_and_belong_to_one_and_changes_add_up() -> None:
    words = [word for beginnings in STYLES for word in beginnings.split("|")]
    assert len(set(words)) == len(words)
    assert all(word == word.casefold() for word in words)
    assert ProsodyChange(rate=2, pitch=3).then(ProsodyChange(rate=2, range=1)) == ProsodyChange(4, 3, 1, 1)


def test_a_part_is_a_sentence_with_the_space_behind_it() -> None:
    parts = list(models.load(ENGINES["qwen"]).render(SpeechJob(f"{SENTENCE} {SENTENCE}  And more.", "en")))
    assert [part.characters for part in parts] == [len(SENTENCE) + 1, 2 * len(SENTENCE) + 3, 2 * len(SENTENCE) + 12]


async def test_cosyvoice_is_watermarked_and_qwen_is_not() -> None:
    from audio.watermark import THRESHOLD, Watermark

    watermark = Watermark()
    for provider, is_marked in (("cosyvoice", True), ("qwen", False)):
        block = await models.load(ENGINES[provider]).speak_whole(SpeechJob(SENTENCE, "en"))
        with av.open(io.BytesIO(block.data)) as file:
            sound = np.concatenate([frame.to_ndarray().ravel() for frame in file.decode(audio=0)]) / 32_768
        assert (watermark.detect(sound.astype(np.float32), 24_000) > THRESHOLD) is is_marked


# Pico


def said(text: str, rate: float = 1.0, higher: float = 1.0, language: str = "de") -> np.ndarray:
    return pico.speak(text, language, rate, higher)


def test_pitch_and_speed_of_pico_are_bounded() -> None:
    def pitch_hz(higher: float) -> float:
        return hearing.pitch_of(said(GERMAN, higher=higher), pico.SAMPLE_RATE).f0_hz

    usual_hz = pitch_hz(1)
    for higher, times in ((0.75, 0.75), (1.5, 1.5), (0.1, 0.5), (9, 2)):
        assert pitch_hz(higher) == pytest.approx(times * usual_hz, rel=0.05)
    lengths = [len(said(GERMAN, rate)) for rate in (0.5, 1, 2)]
    assert lengths[0] == pytest.approx(2 * lengths[1], rel=0.15)
    assert lengths[2] == pytest.approx(lengths[1] / 2, rel=0.3)


@settings(max_examples=300, deadline=None)
@given(text=st.text(max_size=300) | st.text("<>＜﹤a9ß½ﬁ", max_size=300))
@example(text="<genfile file='x'>＜speed level='20'＞")
def test_the_library_is_given_no_markup_and_no_long_word(text: str) -> None:
    given = pico.readable(text)
    assert not set("<>\0\x1b\n") & set(given)
    assert all(len(word) <= 25 for word in given.split(" "))
    assert given.isprintable()


def test_signs_of_print_are_read_as_those_of_a_keyboard_and_every_digit_of_an_endless_number() -> None:
    assert pico.readable("Geht’s von 9–17 Uhr…") == "Geht's von 9-17 Uhr."
    assert len(said("7" * 40)) > 1.8 * len(said("7" * 20)) > 20_000


def test_no_file_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for mark in ("<genfile file='a.wav'>", '＜genfile file="a.wav"＞', "&lt;genfile file='a.wav'&gt;"):
        assert len(said(f"{mark}Hallo</genfile>"))
    assert list(tmp_path.iterdir()) == []


def test_a_text_hears_nothing_of_those_before_it() -> None:
    first = said(GERMAN)
    for text, language in (("hello " * 20, "en"), ("Ciao, bella signora.", "it"), ("x", "de")):
        said(text, language=language)
        assert np.array_equal(said(GERMAN), first)
