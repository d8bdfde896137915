"""Qwen3-TTS's engine on its true package, in the environment that `make setup-qwen` makes; weights are a twin's."""

from __future__ import annotations

import wave
from pathlib import Path

import pytest

from tests.models.qwen import outcomes_of
from tests.models.speech.qwen_child import CHECKS, HUM, TONE, load


@pytest.fixture(scope="module")
def outcomes(needs_environment: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    home = tmp_path_factory.mktemp("qwen")
    (home / "voices").mkdir()
    for name, rate, samples in (("f", 24_000, TONE), ("m", 16_000, HUM)):
        with wave.open(str(home / "voices" / f"{name}.wav"), "wb") as file:
            file.setparams((1, 2, rate, 0, "NONE", ""))
            file.writeframes(samples)
        (home / "voices" / f"{name}.txt").write_text("Das wird gesagt.")
    return outcomes_of("tests.models.speech.qwen_child", home)


@pytest.mark.parametrize("check", [check.__name__ for check in CHECKS])
def test_qwen(outcomes: dict[str, str], check: str) -> None:
    assert outcomes[check] == "", outcomes[check]


# By names that docs/threat-model.md has.


def test_control_tokens_of_a_client_are_text(outcomes: dict[str, str]) -> None:
    assert outcomes["control_tokens_of_a_client_are_text"] == ""


def test_a_passage_that_cannot_be_spoken_fails_alone(outcomes: dict[str, str]) -> None:
    assert outcomes["a_passage_that_cannot_be_spoken_fails_alone"] == ""


def test_what_is_remembered_of_a_clip_is_remembered_for_its_organisation(outcomes: dict[str, str]) -> None:
    assert outcomes["stored_voices_are_listened_to_at_start_and_clips_once_for_each_organisation"] == ""


def test_another_environment_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="no qwen-tts; run `make setup-qwen` to make the environment"):
        load(tmp_path)
