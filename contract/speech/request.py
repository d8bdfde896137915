"""POST /audio/speech: what a body may say, what an engine is asked to speak, and what it gives back. Spec 4.

    SpeechRequest      a validated body
    Utterance          what crosses the handle to an engine: text, voice, style; plain types only
      `- Clip          a decoded recording whose voice is to be imitated
    AudioBlock         a piece of the finished file, and how far it reaches

`contract.speech.routing` says which engine speaks, `contract.speech.marks` what marks inside the text mean.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field

from contract.catalog import AudioFormat
from contract.limits import SPEECH_INPUT_CHARS, SPEECH_STYLE_CHARS

Provider = Literal["supertonic", "cosyvoice", "mistral", "qwen"]
"""An engine's name on the wire. The catalogue knows all of them, set up or not."""

MEDIA_TYPES: dict[AudioFormat, str] = {
    "wav": "audio/wav",
    "flac": "audio/flac",
    "mp3": "audio/mpeg",
    "opus": "audio/ogg; codecs=opus",
    "aac": "audio/aac",
}


def _clip_bytes(value: Any) -> bytes:
    if not isinstance(value, str):
        raise ValueError("a base64 string is expected")
    try:
        # Common tools break base64 into lines.
        clip = base64.b64decode("".join(value.split()), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("this is no valid base64") from None
    if not clip:
        raise ValueError("the clip is empty")
    return clip


ClipBytes = Annotated[bytes, BeforeValidator(_clip_bytes, json_schema_input_type=str)]


class SpeechRequest(BaseModel):
    """A body of POST /audio/speech. Unknown fields are ignored (spec 1, rule 1), and so is an unknown `model`.

    Attributes:
        input: of any length; the engine says how much it takes (`contract.speech.routing`).
        emotion: a style instruction; `instruction` (and the third party's `instructions`) mean the same.
        reference_audio_b64: wav or flac, decoded from base64 already.
        prompt_text: verbatim transcript of that clip.
        speed: looked at only for engines that have it.
        stream_format: `sse` sends the audio as events, base64 inside.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    input: str
    voice: str | None = None
    provider: Provider | None = None
    model: str | None = None
    response_format: AudioFormat | None = None
    language: str | None = None
    emotion: str | None = Field(
        None, max_length=SPEECH_STYLE_CHARS, validation_alias=AliasChoices("emotion", "instruction", "instructions")
    )
    reference_audio_b64: ClipBytes | None = None
    prompt_text: str | None = Field(None, max_length=SPEECH_INPUT_CHARS)
    speed: float | None = None
    stream_format: Literal["audio", "sse"] = "audio"


@dataclass(frozen=True, slots=True)
class Clip:
    """A recording of a voice.

    Attributes:
        samples: mono, little-endian 16-bit PCM.
        sample_rate: in Hz.
        transcript: what is said in it, word for word, or None if nobody knows.
    """

    samples: bytes
    sample_rate: int
    transcript: str | None = None


@dataclass(frozen=True, slots=True)
class Utterance:
    """What one engine is asked to speak.

    Attributes:
        text: without marks that the engine does not know.
        language: ISO 639-1; what the engine was told to speak, or what the text seems to be.
        voice: slug of one of the engine's fixed voices; None for its own default, or where a clip stands.
        clip: the voice to imitate.
        style: a natural-language instruction.
        speed: 1 is the engine's own.
        format: one of the engine's formats.
    """

    text: str
    language: str
    voice: str | None = None
    clip: Clip | None = None
    style: str | None = None
    speed: float = 1.0
    format: AudioFormat = "wav"


@dataclass(frozen=True, slots=True)
class AudioBlock:
    """The next bytes of the file.

    Attributes:
        data: encoded; blocks in order are the file.
        characters: of the text, from its beginning, that this and all earlier blocks speak.
        seconds: of sound in this and all earlier blocks.
    """

    data: bytes
    characters: int
    seconds: float
