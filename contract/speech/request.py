"""Bodies of POST /audio/speech."""

from __future__ import annotations

import binascii
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field

from contract.base import Lenient
from contract.catalog import AudioFormat
from contract.limits import SPEECH_INPUT_CHARS
from contract.speech.verdict import Verify

MEDIA_TYPES: dict[str, str] = {
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
        # Common tools break base64 into lines. All of it runs in C: a clip of up to 32 MiB blocks the event loop.
        clip = binascii.a2b_base64(value.encode("ascii").translate(None, b" \t\r\n"), strict_mode=True)
    except ValueError:
        raise ValueError("it is not valid base64") from None
    if not clip:
        raise ValueError("the clip is empty")
    return clip


def _marked_format(value: Any) -> Any:
    if value == "pcm":
        raise ValueError(
            "`pcm` is not offered, because raw samples can carry no mark that they are AI-generated; send `wav`, which "
            f"has the same samples, or another of {', '.join(get_args(AudioFormat))}"
        )
    return value


ClipBytes = Annotated[bytes, BeforeValidator(_clip_bytes, json_schema_input_type=str)]


class SpeechRequest(Lenient):
    """A body of POST /audio/speech. Unknown fields are ignored, and so is an unknown `model`.

    An empty clip does not count as absent: the recording was lost on the way, and no other voice may replace it.

    Attributes:
        input: text to speak, with a limit for each engine (`contract.speech.routing`).
        provider: name of an engine of the catalogue (`contract.speech.routing`).
        emotion, instruction, instructions: style instruction under its three names; the last is OpenAI's. The first
            that is not empty is used.
        reference_audio_b64: voice to imitate: WAV or FLAC, base64-encoded, up to 30 s.
        prompt_text: verbatim transcript of that clip.
        speed: factor on the speed, for engines that support it.
        stream_format: `sse` sends the audio as events, base64 inside.
        verify: speech verification: `report` returns a transcript of the speech, `retry` speaks again if it differs.
    """

    _keeps_empty = frozenset({"reference_audio_b64"})

    input: str
    voice: str | None = None
    provider: str | None = None
    model: str | None = None
    response_format: Annotated[AudioFormat, BeforeValidator(_marked_format)] | None = None
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
        """Style instruction, unchanged; empty if there is none. Only engines that follow it limit its length."""
        return self.emotion or self.instruction or self.instructions or ""
