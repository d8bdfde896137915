"""espeak-ng, Pico and what Kokoro does without weights: what each does alone, beside the promises of every engine."""

import io
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import av
import espeakng_loader
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

import configs
import models
from contract.speech.engine import Clip, SpeechJob
from models import pico
from models.espeak import library
from models.espeak.library import SAMPLE_RATE
from models.espeak.voices import VoiceSettings, language_of, settings_for
from models.kokoro.phonemes import RUN_PHONEMES, runs
from models.kokoro.speaker import ESPEAK_NAMES
from models.kokoro.styles import KokoroVoice, at_home, expected, measured, mixture
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


def test_after_a_voice_that_is_unknown_the_one_before_is_set_again() -> None:
    named = list[bytes]()
    espeak = object.__new__(library._Library)
    espeak._voice = "de"
    refuses = SimpleNamespace(espeak_SetVoiceByName=lambda name: named.append(name) or int(name != b"de"))
    espeak.calls = cast(Any, refuses)
    with pytest.raises(ValueError, match="no voice `nowhere`"):
        espeak.set_voice("nowhere")
    espeak.set_voice("de")
    assert named == [b"nowhere", b"de"]


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


CHANGES = {
    ("please speak very slowly", 1): (1.33, 1), ("etwas schneller", 1): (0.77, 1), ("Traurig!", 1): (1.17, 0.85),
    ("cheerful and bright", 1): (0.9, 1.3), ("a DEEP voice", 1): (1, 0.83), ("like a pirate", 1): (1, 1),
    ("", 1): (1, 1), ("", 0.5): (2, 1), ("", 2): (0.5, 1),
}  # fmt: skip
"""By style and speed: how much longer and higher a sentence is."""


def test_style_and_speed() -> None:
    plain = spoken(SENTENCE, THORSTEN)
    for (style, speed), (longer, higher) in CHANGES.items():
        changed = spoken(SENTENCE, THORSTEN, speed=speed, style=style)
        assert len(changed) == pytest.approx(longer * len(plain), rel=0.08), (style, speed)
        assert pitch_of(changed).f0_hz == pytest.approx(higher * pitch_of(plain).f0_hz, rel=0.08), (style, speed)


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


@settings(max_examples=300)
@given(text=st.text(max_size=300) | st.text("<>＜﹤a9ß½ﬁ", max_size=300))
@example(text="<genfile file='x'>＜speed level='20'＞")
@example(text="a" * 26)
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


# Kokoro: its phonemes and its mixtures of styles, which need no weights


PHONEME_VOICES = sorted({*ESPEAK_NAMES.values(), "en"})
SPELLED = {
    ("The better boy joined a church choir.", "en-us"): "ðə bˈɛTəɹ bˈY ʤˈYnd ə ʧˈɜɹʧ kwˈIəɹ.",
    ("No boats near the chair.", "en"): "nˈQ bˈQts nˌɪə ðə ʧˈɛː.",
    ("Bonjour, ça va ?", "fr"): "bɔ̃ʒˈuʁ, sa vˈa?",
    ("Gli zii: pizza!", "it"): "ʎɪ ʣjˈi: pˈiʦːa!",
    ("Zwölf Äpfel für die Häuser im Dorf, bitte!", "de"): "ʦvˈœlf ˈɛpfəl fyːʁ diː hˈYzɐ ɪm dˈɔʁf, bˈɪtə!",
    ("आज आप कैसे हैं? सुबह।", "hi"): "ˈaːɟ ˌaːp kˈɛːseː hɛ̃? sˈʊbəh.",
}


def test_a_long_word_and_a_long_number_are_said_to_their_end() -> None:
    for voice, once in (("ja", "こ" * 100), ("pl", "1234567890" * 4)):
        short, long = (len(library.speak(text, library.Manner(voice))) for text in (once, 2 * once))
        assert long > 1.7 * short, (voice, short, long)


def test_phonemes_are_spelled_as_the_network_learned_them() -> None:
    assert {order: runs(*order) for order in SPELLED} == {order: [spelled] for order, spelled in SPELLED.items()}


def test_numbers_and_abbreviations_are_read_out_and_end_no_sentence() -> None:
    (said,) = runs("Dr. Smith paid 3.50, didn't he? Yes — he did; well: good... And so on.", "en-us")
    assert "dˈɑktəɹ smˈɪθ" in said
    assert [char for char in said if char in ".,!?;:—…"] == [",", "?", "—", ";", ":", "…", "."]
    assert [clause.text for clause in library.clauses("Dr. No, hello.", "en-us")] == ["Dr.", "No,", "hello."]
    assert runs("Will he come? No. He stays.", "en-us")[0].count(".") == 2
    # Words of other languages bring no marks along.
    assert not set("()^") & set("".join(runs("El weekend y le café (du soir) ^ привет", "es")))


def test_what_cannot_be_spoken_gives_no_run_or_a_short_one() -> None:
    for text in ("", " ", "\0", "\ud800", "—", "...", "\u0301" * 300):
        assert all(len(run) < 40 for run in runs(text, "en-us")), text


def test_no_run_is_longer_than_the_network_takes_well() -> None:
    for text in ("9" * 300, "a" * 300, "😀" * 300, "天" * 300, "word " * 60, "-" * 300, "﷽" * 50):
        for voice in PHONEME_VOICES:
            assert all(0 < len(run) <= RUN_PHONEMES for run in runs(text, voice)), (text[:5], voice)
    assert " ".join(runs("7" * 300, "en-us")).count("sˈɛvən") >= 300, "every digit is read"


@settings(max_examples=60)
@given(text=st.text(max_size=80), voice=st.sampled_from(PHONEME_VOICES))
def test_any_text_has_phonemes_or_none(text: str, voice: str) -> None:
    assert all(0 < len(run) <= RUN_PHONEMES for run in runs(text, voice))


def test_weights_are_kept_as_shares() -> None:
    voice = KokoroVoice(styles={"af_heart": 3, "af_bella": 1})
    assert voice.styles == {"af_heart": 0.75, "af_bella": 0.25}
    assert KokoroVoice.model_validate_json(voice.model_dump_json()) == voice


def test_a_voice_that_is_none_is_refused() -> None:
    for styles in ({}, {"a": 0}, {"a": -1}, {"a": float("inf")}, {"a": float("nan")}):
        with pytest.raises(ValidationError):
            KokoroVoice.model_validate({"styles": styles})
    for more in ({"speed": 0}, {"more": 1}):
        with pytest.raises(ValidationError):
            KokoroVoice.model_validate({"styles": {"a": 1}} | more)


def test_a_mixture_is_of_the_two_styles_beside_a_height_and_out_of_reach_of_the_nearest() -> None:
    for f0_hz in (80.0, 100.0, 130.5, 160.0, 184.0, 200.0):
        shares = mixture(f0_hz)
        assert sum(shares.values()) == pytest.approx(1)
        assert expected(shares).f0_hz == pytest.approx(f0_hz, abs=1)
        assert len(shares) <= 2
    outermost = {(20, "en"): "am_onyx", (2000, "fr"): "bf_isabella", (20, "de"): "im_nicola", (2000, "de"): "if_sara"}
    assert {order: mixture(*order) for order in outermost} == {order: {name: 1} for order, name in outermost.items()}


def test_every_style_is_measured_by_ear_and_by_level() -> None:
    assert len(measured()) == 54
    assert all(70 < one.f0_hz < 350 and 0.03 < one.loudness < 0.3 for one in measured().values())


def test_a_man_is_half_a_native_abroad() -> None:
    for language, native in (("fr", "ff_siwis"), ("de", "ff_siwis"), ("es", "em_alex"), ("it", "im_nicola")):
        assert at_home({"am_adam": 0.6, "am_echo": 0.4}, language) == {"am_adam": 0.3, "am_echo": 0.2, native: 0.5}
        assert sum(at_home({native: 1.0}, language).values()) == 1
    assert at_home({"am_adam": 1.0}, "en") == {"am_adam": 1.0}
