"""What is heard in a clip, for engines that imitate nothing else of it."""

from __future__ import annotations

from contract.speech.engine import Clip


def height_hz(clip: Clip) -> float | None:
    """Median pitch of the voice in a clip, or None where no voice is heard in it."""
    import numpy as np

    from audio.pitch import measure

    voice = measure(np.frombuffer(clip.samples, "<i2"), clip.sample_rate)
    return voice.f0_hz if voice else None
