"""Recordings that tests send."""

import io
import wave


def wav(seconds: float = 1.0, rate: int = 16_000, sample: bytes = b"\0\0") -> bytes:
    """A WAV file of one sample over and over: silence unless another one is given."""
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setparams((1, 2, rate, 0, "NONE", ""))
        writer.writeframes(sample * int(seconds * rate))
    return file.getvalue()
