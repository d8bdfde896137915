"""Qwen3-TTS's designer on its true package, in the environment that `make setup-qwen` makes; weights are a twin's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from audio.pitch import Pitch
from models.voice_design.adapter import Try
from models.voice_design.qwen import Description, QwenDesigner, hint
from tests.models.qwen import outcomes_of
from tests.models.voice_design.qwen_child import CHECKS, JOB, load


@pytest.fixture(scope="module")
def outcomes(needs_environment: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return outcomes_of("tests.models.voice_design.qwen_child", tmp_path_factory.mktemp("qwen"))


@pytest.mark.parametrize("check", [check.__name__ for check in CHECKS])
def test_qwen(outcomes: dict[str, str], check: str) -> None:
    assert outcomes[check] == "", outcomes[check]


def test_another_environment_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="no qwen-tts; run `make setup-qwen` to make the environment"):
        load(tmp_path)


def heard(f0_hz: float) -> Pitch:
    return Pitch(f0_hz, f0_hz, f0_hz, 300)


def test_what_was_heard_is_said() -> None:
    words = {
        125: "slightly deeper", 130: "noticeably deeper", 146: "noticeably deeper", 147: "much deeper",
        100: "slightly higher pitched", 93: "noticeably higher pitched", 80: "much higher pitched",
    }  # fmt: skip
    for f0_hz, says in words.items():
        assert hint(heard(f0_hz), 110) == f"The voice is {says} than one would expect, around 110 Hz."


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
