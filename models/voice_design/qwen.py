"""Qwen3-TTS VoiceDesign: a voice from its description.

Its model chooses by chance, so another attempt is another voice. The measured pitch of the last attempt is added to
the description, and a new seed is drawn, at a higher temperature than the first time. Adopted voices are imitated from
their clip by the variant `base`. Runs in an environment of its own (`make setup-qwen`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log2
from pathlib import Path
from typing import TYPE_CHECKING

from audio.pitch import Pitch
from contract.catalog import VoiceDesignModel
from contract.voice_design.engine import DesignJob
from models import SOUND
from models.options import read
from models.qwen_tts import (
    IMPORTS,
    LANGUAGES,
    SAMPLE_RATE,
    NetworkOptions,
    checked,
    load,
    most_frames,
    plain_text,
    ran_on,
)
from models.voice_design.adapter import DesignAdapter, Try
from models.weights.files import need_folder

if TYPE_CHECKING:
    from audio.encoding import Samples

DEGREES = ((5.0, "much"), (2.5, "noticeably"), (0.0, "slightly"))
"""Semitones off the target, and how a correction is called from there on."""

FIRST_TEMPERATURE, LATER_TEMPERATURE = 0.9, 1.0
"""The first is the model's own."""


@dataclass(frozen=True, slots=True)
class Description:
    """Text for the model, and the settings of its sampling."""

    instruct: str
    seed: int
    temperature: float


class QwenDesigner(DesignAdapter[Description]):
    """The loaded variant `voice_design`."""

    options_type = NetworkOptions
    imports = SOUND + IMPORTS
    sample_rate = SAMPLE_RATE

    def __init__(self, model: VoiceDesignModel, path: Path | None) -> None:
        super().__init__(model, path)
        self._tts = load(need_folder(path, model.id), read(model, NetworkOptions), "voice_design")
        self._plain = plain_text(self._tts)

    def propose(self, job: DesignJob, tries: Sequence[Try[Description]]) -> Description:
        if not tries:
            return Description(job.instruct, job.seed, FIRST_TEMPERATURE)
        last = next((attempt.pitch for attempt in reversed(tries) if attempt.pitch), None)
        instruct = f"{job.instruct} {hint(last, job.target_hz)}" if last else job.instruct
        return Description(instruct, job.seed + len(tries), LATER_TEMPERATURE)

    def speak(self, job: DesignJob, voice: Description) -> Samples:
        import numpy as np
        import torch

        torch.manual_seed(voice.seed)
        most = most_frames(job.text)
        outputs, rate = self._tts.generate_voice_design(
            text=self._plain(job.text),
            instruct=self._plain(voice.instruct),
            language=LANGUAGES[job.language],
            max_new_tokens=most,
            temperature=voice.temperature,
        )
        if ran_on(outputs[0], most):
            return np.empty(0, np.float32)
        return checked(outputs[0], rate, self.sample_rate, self.model.id)

    def recipe(self, voice: Description) -> None:
        """The clip is all that there is of it."""


def hint(last: Pitch, target_hz: int) -> str:
    """Returns the change to ask for: that the voice is noticeably deeper than one would expect, around 95 Hz."""
    semitones = 12 * log2(last.f0_hz / target_hz)
    degree = next(word for least, word in DEGREES if abs(semitones) >= least)
    direction = "deeper" if semitones > 0 else "higher pitched"
    return f"The voice is {degree} {direction} than one would expect, around {target_hz} Hz."
