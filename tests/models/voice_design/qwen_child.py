"""What `test_qwen` looks at, run by the interpreter of Qwen3-TTS: `python -m ... FOLDER`, JSON at the end.

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
from tests.models.qwen import counted, error, relabelled, report
from tests.models.voice_design.jobs import job

JOB = job("de", 110, text="Guten Tag.", instruct="A deep man.", gender="m", age_years=40, attempts=3, seed=7)
SERVING = Serving(
    adapter="models.voice_design.qwen:QwenDesigner",
    runtime="twin",
    max_ongoing_requests=1,
    options={"dtype": "float32"},
)


def look(twin: Path) -> dict[str, Any]:
    """Everything that the designer does."""
    designer = load(twin)
    asked = counted(designer._tts, "generate_voice_design")

    def sound(job: DesignJob = JOB, **changes: Any) -> str:
        first = designer.propose(job, [])
        return hashlib.sha256(designer.speak(job, replace(first, **changes)).tobytes()).hexdigest()

    first = designer.propose(JOB, [])
    samples = designer.speak(JOB, first)
    found: dict[str, Any] = {
        "type": [str(samples.dtype), samples.ndim, len(samples) % 1_920, len(samples) > 0],
        "loudest": float(np.abs(samples).max()),
        "same": sound() == sound(),
        "other_seed": sound() != sound(seed=8),
        "other_description": sound() != sound(instruct="A bright woman."),
        "other_language": sound() != sound(replace(JOB, language="fr")),
        "other_temperature": sound() != sound(temperature=1.0),
    }
    limits = qwen_tts.SPARE_FRAMES, qwen_tts.FRAMES_PER_CHAR
    qwen_tts.SPARE_FRAMES, qwen_tts.FRAMES_PER_CHAR = 1, 1
    found["never_ends"] = len(designer.speak(replace(JOB, text="A"), first))
    qwen_tts.SPARE_FRAMES, qwen_tts.FRAMES_PER_CHAR = limits
    asked.clear()
    found["noise"] = error(lambda: asyncio.run(designer.design(JOB)))
    found["asked"] = [[call["instruct"], call["language"], call["temperature"]] for call in asked]
    found["recipe"] = designer.recipe(first)
    found["other_variant"] = error(lambda: load(relabelled(twin, "base")))
    designer.close()
    return found


def load(twin: Path, **options: Any) -> Any:
    """The true adapter."""
    from models.voice_design.qwen import QwenDesigner

    serving = SERVING.model_copy(update={"options": SERVING.options | options})
    model = VoiceDesignModel(id="qwen3-tts", owned_by="t", provider="qwen", languages=("de", "fr"), serving=serving)
    return QwenDesigner(model, twin)


if __name__ == "__main__":
    report("voice_design", look)
