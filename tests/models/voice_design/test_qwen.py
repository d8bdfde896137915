"""Qwen3-TTS's designer on its true package, in the environment that `make setup-qwen` makes; weights are a twin's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from audio.pitch import Pitch
from models.voice_design.adapter import Try
from models.voice_design.qwen import Description, QwenDesigner, hint
from tests.models.qwen import seen_by
from tests.models.voice_design.qwen_child import JOB, load


@pytest.fixture(scope="module")
def found(needs_environment: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the child saw of the twin."""
    return seen_by("tests.models.voice_design.qwen_child", tmp_path_factory.mktemp("qwen"))


def test_a_description_makes_a_voice(found: dict[str, Any]) -> None:
    assert found["type"] == ["float32", 1, 0, True]
    assert 0 < found["loudest"] <= 1
    assert found["recipe"] is None


@pytest.mark.parametrize("what", ["same", "other_seed", "other_description", "other_language", "other_temperature"])
def test_seed_description_language_and_temperature_decide(found: dict[str, Any], what: str) -> None:
    assert found[what]


def test_noise_is_tried_anew_and_never_delivered(found: dict[str, Any]) -> None:
    assert found["noise"] == "ApiError: UPSTREAM_ERROR"
    assert found["asked"] == [["A deep man.", "German", t] for t in (0.9, 1.0, 1.0)]


def test_a_sentence_without_end_is_no_voice(found: dict[str, Any]) -> None:
    assert found["never_ends"] == 0


def test_other_weights_are_refused(found: dict[str, Any]) -> None:
    assert "contains `base`, but `voice_design` is needed" in found["other_variant"]


def test_another_environment_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="no qwen-tts; run `make setup-qwen` to make the environment"):
        load(tmp_path)


def heard(f0_hz: float) -> Pitch:
    return Pitch(f0_hz, f0_hz, f0_hz, 300)


@pytest.mark.parametrize(
    ("f0_hz", "words"),
    [
        (125, "slightly deeper"),
        (130, "noticeably deeper"),
        (146, "noticeably deeper"),
        (147, "much deeper"),
        (100, "slightly higher pitched"),
        (93, "noticeably higher pitched"),
        (80, "much higher pitched"),
    ],
)
def test_what_was_heard_is_said(f0_hz: float, words: str) -> None:
    assert hint(heard(f0_hz), 110) == f"The voice is {words} than one would expect, around 110 Hz."


def test_the_last_voice_that_was_heard_decides_what_is_said() -> None:
    designer = QwenDesigner.__new__(QwenDesigner)  # without weights
    first = designer.propose(JOB, [])
    assert first == Description("A deep man.", 7, 0.9)
    tries = [Try(first, heard(220)), Try(first, heard(90)), Try(first, None)]
    assert "much deeper" in designer.propose(JOB, tries[:1]).instruct
    later = designer.propose(JOB, tries)
    assert later.instruct.startswith("A deep man. The voice is noticeably higher pitched")
    assert later.seed == 10
    assert designer.propose(replace(JOB, seed=8), []).seed == 8
