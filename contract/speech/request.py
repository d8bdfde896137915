"""POST /audio/speech: what a body may say."""

from __future__ import annotations

import binascii
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from contract.base import Lenient
from contract.catalog import AudioFormat
from contract.limits import SPEECH_INPUT_CHARS
from contract.speech.verdict import Verify

MEDIA_TYPES: dict[AudioFormat, str] = {
    "wav": "audio/wav",
    "flac": "audio/flac",
    "mp3": "audio/mpeg",
    "opus": "audio/ogg; codecs=opus",
    "aac": "audio/aac",
}


def _clip_bytes(value: Any) -> bytes:
    if not isinstance(value, str):
        raise ValueError("it must be a base64 string")
    try:
        # Common tools break base64 into lines. All of it in C: a clip has up to 32 MiB, and everybody else waits.
        clip = binascii.a2b_base64(value.encode("ascii").translate(None, b" \t\r\n"), strict_mode=True)
    except ValueError:
        raise ValueError("it is not valid base64") from None
    if not clip:
        raise ValueError("the clip is empty")
    return clip


ClipBytes = Annotated[bytes, BeforeValidator(_clip_bytes, json_schema_input_type=str)]


class SpeechRequest(Lenient):
    """A body of POST /audio/speech. Unknown fields are ignored, and so is an unknown `model`.

    Attributes:
        input: of any length; the engine says how much it takes (`contract.speech.routing`).
        provider: name of an engine; the catalogue knows which there are (`contract.speech.routing`).
        emotion, instruction, instructions: how to speak, in words, by its three names; the last one is OpenAI's. Of
            several that say something the first counts.
        reference_audio_b64: a voice to imitate: WAV or FLAC, base64-encoded, up to 30 s.
        prompt_text: verbatim transcript of that clip.
        speed: looked at only for engines that have it.
        stream_format: `sse` sends the audio as events, base64 inside.
        verify: whether our ears listen: `report` tells what they heard, `retry` speaks again where it differs.
    """

    input: str
    voice: str | None = None
    provider: str | None = None
    model: str | None = None
    response_format: AudioFormat | None = None
    language: str | None = None
    emotion: str | None = None
    instruction: str | None = None
    instructions: str | None = None
    reference_audio_b64: ClipBytes | None = None
    prompt_text: str | None = Field(None, max_length=SPEECH_INPUT_CHARS)
    speed: float | None = None
    stream_format: Literal["audio", "sse"] = "audio"
    verify: Verify = "off"

    @property
    def style(self) -> str:
        """How to speak, as it came, or nothing. Its length counts for engines that follow it."""
        return self.emotion or self.instruction or self.instructions or ""
