"""Checks of Qwen3-TTS's designer, run by its interpreter: `python -m tests.models.voice_design.qwen_child FOLDER`.

The true package, its true loader and classes; only the weights are a twin's, which makes noise. It is made in FOLDER.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from contract.catalog import Serving, VoiceDesignModel
from contract.voice_design.engine import DesignJob
from models import qwen_tts
from tests.models.qwen import checks_of, counted, error, relabelled, run_checks
from tests.models.voice_design.jobs import job

JOB = job("de", 110, text="Guten Tag.", instruct="A deep man.", gender="m", age_years=40, attempts=3, seed=7)
OPTIONS = {"dtype": "float32"}


def load(twin: Path) -> Any:
    from models.voice_design.qwen import QwenDesigner

    adapter = "models.voice_design.qwen:QwenDesigner"
    serving = Serving(adapter=adapter, runtime="twin", max_ongoing_requests=1, options=OPTIONS)
    model = VoiceDesignModel(id="qwen3-tts", owned_by="t", provider="qwen", languages=("de", "fr"), serving=serving)
    return QwenDesigner(model, twin)


def a_description_makes_a_voice(subject: Any) -> None:
    first = subject.propose(JOB, [])
    samples = subject.speak(JOB, first)
    assert (samples.dtype, samples.ndim, len(samples) % 1_920) == (np.float32, 1, 0)
    assert 0 < np.abs(samples).max() <= 1
    assert subject.recipe(first) is None


def seed_description_language_and_temperature_decide(subject: Any) -> None:
    def sound(job: DesignJob = JOB, **changes: Any) -> str:
        first = subject.propose(job, [])
        return hashlib.sha256(subject.speak(job, replace(first, **changes)).tobytes()).hexdigest()

    assert sound() == sound()
    changes: list[dict[str, Any]] = [{"seed": 8}, {"instruct": "A bright woman."}, {"temperature": 1.0}]
    assert sound() not in [*(sound(**change) for change in changes), sound(replace(JOB, language="fr"))]


def a_sentence_without_end_is_no_voice(subject: Any) -> None:
    limits = qwen_tts.SPARE_FRAMES, qwen_tts.FRAMES_PER_CHAR
    qwen_tts.SPARE_FRAMES, qwen_tts.FRAMES_PER_CHAR = 1, 1
    samples = subject.speak(replace(JOB, text="A"), subject.propose(JOB, []))
    qwen_tts.SPARE_FRAMES, qwen_tts.FRAMES_PER_CHAR = limits
    assert len(samples) == 0


def noise_is_tried_anew_and_never_delivered(subject: Any) -> None:
    asked = counted(subject._tts, "generate_voice_design")
    assert error(lambda: asyncio.run(subject.design(JOB))) == "ApiError: UPSTREAM_ERROR"
    told = [[call["instruct"], call["language"], call["temperature"]] for call in asked]
    assert told == [["A deep man.", "German", temperature] for temperature in (0.9, 1.0, 1.0)]


def other_weights_are_refused(subject: Any) -> None:
    assert "contains `base`, but `voice_design` is needed" in error(lambda: load(relabelled(subject.twin, "base")))


CHECKS = checks_of(globals())


def start(twin: Path) -> Any:
    designer = load(twin)
    designer.twin = twin
    return designer


if __name__ == "__main__":
    run_checks("voice_design", start, CHECKS)
