"""Qwen3-TTS's engine and designer on its true package, in the environment that `make setup-qwen` makes."""

import json
import os
import subprocess
import wave
from collections.abc import Generator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from audio.pitch import Pitch
from contract.speech.engine import SpeechJob
from models.qwen_tts import SAMPLES_PER_FRAME
from models.speech import qwen as speech_qwen
from models.voice_design.adapter import Try
from models.voice_design.qwen import Description, QwenDesigner, hint
from tests.models.qwen_child import CLIP, HUM, JOB, TONE, load_designer, load_speaker

ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("PARLANCE_QWEN_PYTHON", ROOT / ".venv" / "qwen" / "bin" / "python"))


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """By the name of each check of `qwen_child`: empty where it held, else the traceback."""
    if not PYTHON.exists():
        pytest.skip(f"{PYTHON} is missing: `make setup-qwen` makes the environment of Qwen3-TTS")
    home = tmp_path_factory.mktemp("qwen")
    (home / "voices").mkdir()
    for name, rate, samples in (("f", 24_000, TONE), ("m", 16_000, HUM)):
        with wave.open(str(home / "voices" / f"{name}.wav"), "wb") as file:
            file.setparams((1, 2, rate, 0, "NONE", ""))
            file.writeframes(samples)
        (home / "voices" / f"{name}.txt").write_text("Das wird gesagt.")
    environment = os.environ | {"PARLANCE_HOME": str(home), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [PYTHON, "-m", "tests.models.qwen_child", home / "twins"]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    return dict(json.loads(run.stdout.splitlines()[-1]))


def test_every_check_holds(outcomes: dict[str, str]) -> None:
    assert len(outcomes) == 17
    assert not any(outcomes.values()), "\n".join(outcomes.values())


# By names that docs/threat-model.md has.


def test_control_tokens_of_a_client_are_text(outcomes: dict[str, str]) -> None:
    assert outcomes["control_tokens_of_a_client_are_text"] == ""


def test_a_passage_that_cannot_be_spoken_fails_alone(outcomes: dict[str, str]) -> None:
    assert outcomes["a_passage_that_cannot_be_spoken_fails_alone"] == ""


def test_what_is_remembered_of_a_clip_is_remembered_for_its_organisation(outcomes: dict[str, str]) -> None:
    assert outcomes["stored_voices_are_listened_to_at_start_and_clips_once_for_each_organisation"] == ""


class TextsOfBatches(list[list[str]]):
    """In place of the package's model. `Lang.` and `Mehr.` run on at first; while it speaks `Mehr.`, callers leave."""

    leaving: Sequence[Generator[Any]] = ()

    def create_voice_clone_prompt(self, **_: Any) -> list[str]:
        return ["a voice"]

    def generate_voice_clone(self, text: list[str], max_new_tokens: int, **_: Any) -> tuple[list[np.ndarray], int]:
        too_long = {"Lang.", "Mehr."}.difference(*self)
        self.append(text)
        for left in self.leaving if "Mehr." in text else ():
            left.close()
        return [np.zeros(max_new_tokens * SAMPLES_PER_FRAME if one in too_long else 9) for one in text], 24_000


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> TextsOfBatches:
    made = TextsOfBatches()
    monkeypatch.setattr(speech_qwen, "load", lambda *_: made)
    monkeypatch.setattr(speech_qwen, "plain_text", lambda _: str)
    return made


def job_of(texts: list[str]) -> SpeechJob:
    return SpeechJob(" ".join(texts), "de", clip=CLIP, owner=texts[-1][0])


def passages_of(owner: str, text: str, at: int) -> list[str]:
    return [text if number == at else f"{owner} {number} {'x' * 290}." for number in range(40)]


def test_owners_take_turns_passage_by_passage_and_what_was_left_is_not_spoken(
    batches: TextsOfBatches, tmp_path: Path
) -> None:
    a, b, c = passages_of("A", "Mehr.", 17), passages_of("B", "Kurz.", 0), passages_of("C", "Lang.", 0)
    engine = load_speaker(tmp_path)
    *batches.leaving, last = rendered = [engine.render(job_of(texts)) for texts in (a, b, c)]
    assert [len(next(parts).samples) for parts in rendered] == [9, 9, 9]
    assert batches == [
        a[:8],
        [b[0], a[8], b[1], a[9], b[2], a[10], b[3], a[11]],
        ["Lang.", b[4], a[12], c[1], b[5], a[13], c[2], b[6]],
        [a[14], "Lang.", b[7], a[15], c[3], b[8], a[16], c[4]],  # it ran on, and waited for its owner's turn
    ]
    assert len(list(last)) == 39
    assert batches[4] == [b[9], "Mehr.", c[5], b[10], a[18], c[6], b[11], a[19]]
    assert list(chain(*batches[5:])) == c[7:]


def test_an_owner_whose_requests_are_short_is_not_always_first(
    batches: TextsOfBatches, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speech_qwen, "MAX_PASSAGES", 1)
    engine, long = load_speaker(tmp_path), passages_of("A", "Kurz.", 0)
    waiting = engine.render(job_of(long))
    next(waiting)
    for _ in range(2):
        list(engine.render(job_of(["Ja."])))
    assert batches == [["Kurz."], ["Ja."], long[1:2], ["Ja."]]


def test_another_environment_says_what_to_do(tmp_path: Path) -> None:
    for load in (load_speaker, load_designer):
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
