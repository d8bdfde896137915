"""Qwen3-TTS's engine on its true package, in the environment that `make setup-qwen` makes; weights are a twin's."""

from __future__ import annotations

import wave
from pathlib import Path
from typing import Any

import pytest

from tests.models.qwen import seen_by
from tests.models.speech.qwen_child import HUM, TONE, load


@pytest.fixture(scope="module")
def base(needs_environment: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the child saw of the twin."""
    home = tmp_path_factory.mktemp("qwen")
    (home / "voices").mkdir()
    for name, rate, samples in (("f", 24_000, TONE), ("m", 16_000, HUM)):
        with wave.open(str(home / "voices" / f"{name}.wav"), "wb") as file:
            file.setparams((1, 2, rate, 0, "NONE", ""))
            file.writeframes(samples)
        (home / "voices" / f"{name}.txt").write_text("Das wird gesagt.")
    return seen_by("tests.models.speech.qwen_child", home)


def test_same_random_numbers_make_the_same_sound(base: dict[str, Any]) -> None:
    assert base["stored"] == base["stored_again"] == base["default"]


@pytest.mark.parametrize("what", ["other_voice", "other_language", "other_text", "clip", "clip_without_words"])
def test_everything_that_is_asked_for_matters(base: dict[str, Any], what: str) -> None:
    assert base[what] != base["stored"]


def test_languages_are_named(base: dict[str, Any]) -> None:
    assert base["languages"] == [["German"], ["German"], ["German"], ["German"], ["English"], ["German"]]


def test_stored_voices_are_listened_to_at_start_and_clips_once(base: dict[str, Any]) -> None:
    assert base["listened_for_stored"] == 0
    assert base["clip"] == base["clip_again"] != base["clip_without_words"]
    assert base["listened_for_clips"] == [False, True]


def test_a_long_text_is_spoken_as_batches(base: dict[str, Any]) -> None:
    assert base["batches"][0] == 8
    ends = base["parts"]["ends"]
    assert ends == sorted(ends)
    assert ends[-1] == base["parts"]["length"]
    assert len(ends) == base["distinct"] == 10


def test_requests_that_wait_are_spoken_together(base: dict[str, Any]) -> None:
    assert base["together"] == {"texts": [[f"Satz {number}." for number in range(6)]], "spoken": True}


def test_what_is_remembered_of_a_clip_is_remembered_for_its_organisation(base: dict[str, Any]) -> None:
    assert base["listened_for_another"] == 1


def test_control_tokens_of_a_client_are_text(base: dict[str, Any]) -> None:
    assert base["controls"]["spelled"] > 1
    assert base["controls"]["letters"], "nothing is left out"
    assert (base["controls"]["text"], base["controls"]["transcript"]) == (0, 0)


def test_a_passage_that_cannot_be_spoken_fails_alone(base: dict[str, Any]) -> None:
    assert base["poisoned"] == ["RuntimeError: cannot be spoken", "nothing", "nothing"]


def test_a_failed_batch_fails_its_requests_and_no_others(base: dict[str, Any]) -> None:
    assert base["after_a_failure"] == ["RuntimeError: out of memory", "nothing"]


def test_samples_are_float32_and_not_louder_than_one(base: dict[str, Any]) -> None:
    kind, dimensions, loudest = base["types"]
    assert (kind, dimensions) == ("float32", 1)
    assert 0 < loudest <= 1


def test_a_client_gets_a_wav_file(base: dict[str, Any]) -> None:
    assert base["wav"] == {"rate": 24_000, "channels": 1, "rest": 0}


@pytest.mark.parametrize(
    ("how", "what"),
    [
        ("runs_on", "ApiError: STREAM_INCOMPLETE"),
        ("unknown_voice", "ApiError: UNKNOWN_VOICE"),
        ("other_variant", "contains `voice_design`, but `base` is needed"),
        ("other_rate", "speak at 24000 Hz, but its stanza says 16000"),
    ],
)
def test_what_goes_wrong_is_said(base: dict[str, Any], how: str, what: str) -> None:
    assert what in base["errors"][how]


def test_another_environment_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="no qwen-tts; run `make setup-qwen` to make the environment"):
        load(tmp_path)
