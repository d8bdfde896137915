"""What the network is given: phonemes, and mixtures of styles. No weights."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from models.kokoro.phonemes import RUN_PHONEMES, runs
from models.kokoro.speaker import ESPEAK_NAMES
from models.kokoro.styles import KokoroVoice, at_home, expected, measured, mixture

VOICES = sorted({*ESPEAK_NAMES.values(), "en"})


SPELLED = {
    ("The better boy joined a church choir.", "en-us"): "ðə bˈɛTəɹ bˈY ʤˈYnd ə ʧˈɜɹʧ kwˈIəɹ.",
    ("No boats near the chair.", "en"): "nˈQ bˈQts nˌɪə ðə ʧˈɛː.",
    ("Bonjour, ça va ?", "fr"): "bɔ̃ʒˈuʁ, sa vˈa?",
    ("Gli zii: pizza!", "it"): "ʎɪ ʣjˈi: pˈiʦːa!",
    ("Zwölf Äpfel für die Häuser im Dorf, bitte!", "de"): "ʦvˈœlf ˈɛpfəl fyːʁ diː hˈYzɐ ɪm dˈɔʁf, bˈɪtə!",
    ("आज आप कैसे हैं? सुबह।", "hi"): "ˈaːɟ ˌaːp kˈɛːseː hɛ̃? sˈʊbəh.",
}


def test_phonemes_are_spelled_as_the_network_learned_them() -> None:
    assert {order: runs(*order) for order in SPELLED} == {order: [spelled] for order, spelled in SPELLED.items()}


def test_numbers_and_abbreviations_are_read_out_and_end_no_sentence() -> None:
    (said,) = runs("Dr. Smith paid 3.50, didn't he? Yes — he did; well: good... And so on.", "en-us")
    assert "dˈɑktəɹ smˈɪθ" in said
    assert [char for char in said if char in ".,!?;:—…"] == [",", "?", "—", ";", ":", "…", "."]
    # Words of other languages bring no marks along.
    assert not set("()^") & set("".join(runs("El weekend y le café (du soir) ^ привет", "es")))


def test_what_cannot_be_spoken_gives_no_run_or_a_short_one() -> None:
    for text in ("", " ", "\0", "\ud800", "—", "...", "\u0301" * 300):
        assert all(len(run) < 40 for run in runs(text, "en-us")), text


def test_no_run_is_longer_than_the_network_takes_well() -> None:
    for text in ("9" * 300, "a" * 300, "😀" * 300, "天" * 300, "word " * 60, "-" * 300, "﷽" * 50):
        for voice in VOICES:
            assert all(0 < len(run) <= RUN_PHONEMES for run in runs(text, voice)), (text[:5], voice)
    assert " ".join(runs("7" * 300, "en-us")).count("sˈɛvən") >= 300, "every digit is read"


@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=80), voice=st.sampled_from(VOICES))
def test_any_text_has_phonemes_or_none(text: str, voice: str) -> None:
    assert all(0 < len(run) <= RUN_PHONEMES for run in runs(text, voice))


# Voices


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
