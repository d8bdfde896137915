"""Settings of a live session, and the request and reply of POST /realtime/client_secrets.

    config = DEFAULT.updated({"type": "transcription", "audio": {"input": {"turn_detection": None}}})

An update names changes; a format or a turn detection is replaced as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field
from typing_extensions import TypedDict

from contract.base import Lenient
from contract.body import validated
from contract.realtime.limits import (
    CLIENT_SECRET_S,
    CLIENT_SECRET_SESSIONS,
    REALTIME_PADDING_MS,
    REALTIME_RATES_HZ,
    REALTIME_SILENCE_MS,
)
from contract.transcription.request import Prompt, TranscriptionRequest

REPLACED = ("format", "turn_detection")
"""Members of `audio.input` that are replaced as a whole."""

NAME_CHARS = 200


class AudioFormat(Lenient):
    """Format of audio from the client: 16-bit little-endian samples, or G.711 at 8 kHz. One channel."""

    type: Literal["audio/pcm", "audio/pcmu", "audio/pcma"]
    rate: int | None = Field(None, ge=REALTIME_RATES_HZ[0], le=REALTIME_RATES_HZ[1])

    @property
    def sample_rate(self) -> int:
        """Samples per second."""
        return (self.rate or 24_000) if self.type == "audio/pcm" else 8_000

    @property
    def sample_bytes(self) -> int:
        return 2 if self.type == "audio/pcm" else 1

    def object(self) -> dict[str, Any]:
        """Returns the format in the form for clients."""
        return {"type": self.type} | ({"rate": self.sample_rate} if self.type == "audio/pcm" else {})


class LiveTranscriber(Lenient):
    """Transcriber and its hints. The fields are those of a transcription: an unknown `model` means the default."""

    model: str | None = None
    language: str | None = Field(None, max_length=NAME_CHARS)
    prompt: Prompt | None = None

    def request(self) -> TranscriptionRequest:
        """Returns the request for the transcription of a recording with the same settings."""
        return TranscriptionRequest(model=self.model, language=self.language, prompt=self.prompt or None)


class ServerVad(Lenient):
    """Turn detection in which a turn begins with speech and ends with silence.

    Attributes:
        threshold: probability from which a moment counts as speech.
        prefix_padding_ms: milliseconds of audio before speech that belong to the turn.
        silence_duration_ms: milliseconds of silence that end the turn.
    """

    type: Literal["server_vad"]
    threshold: float = Field(0.5, ge=0, le=1)
    prefix_padding_ms: int = Field(300, ge=REALTIME_PADDING_MS[0], le=REALTIME_PADDING_MS[1])
    silence_duration_ms: int = Field(500, ge=REALTIME_SILENCE_MS[0], le=REALTIME_SILENCE_MS[1])


class AudioChanges(Lenient):
    """Changes of the settings of a session's sound."""

    input: dict[str, Any] = {}


class SessionChanges(Lenient):
    """The `session` of an update."""

    type: Literal["transcription"]
    audio: AudioChanges = AudioChanges()


class AudioInput(Lenient):
    """All settings of a session. None is optional: an update is merged into the current ones."""

    format: AudioFormat
    transcription: LiveTranscriber
    turn_detection: ServerVad | None

    def updated(self, session: Mapping[str, Any]) -> AudioInput:
        """Returns the settings with the changes in the `session` of an update. Raises INVALID_REQUEST."""
        changes = validated(SessionChanges, session, ("session",)).audio.input
        merged = self.model_dump()
        for name, value in changes.items():
            if name in REPLACED:
                merged[name] = merged[name] if value is None and name == "format" else value
            elif name == "transcription" and value is not None:
                merged[name] = merged[name] | value if isinstance(value, dict) else value
        return validated(AudioInput, merged, ("session", "audio", "input"))

    def object(self) -> dict[str, Any]:
        """Returns the settings in the form for clients."""
        return {
            "format": self.format.object(),
            "transcription": self.transcription.model_dump(exclude_none=True),
            "noise_reduction": None,
            "turn_detection": self.turn_detection.model_dump() if self.turn_detection else None,
        }


DEFAULT = AudioInput(
    format=AudioFormat(type="audio/pcm", rate=24_000),
    transcription=LiveTranscriber(),
    turn_detection=ServerVad(type="server_vad"),
)
"""Settings of a session before its first update."""


class ExpiresAfter(Lenient):
    """Lifetime of a secret. A session that is open continues after that.

    Attributes:
        anchor: start of the lifetime.
        seconds: length of the lifetime.
    """

    anchor: Literal["created_at"] = "created_at"
    seconds: int = Field(CLIENT_SECRET_S[1], ge=CLIENT_SECRET_S[0], le=CLIENT_SECRET_S[1])


class ClientSecretRequest(Lenient):
    """Request for a client secret.

    Attributes:
        expires_after: lifetime of the secret.
        max_sessions: sessions that may be open with the secret at a time.
        session: first settings of its sessions, as in `session.update`.
    """

    expires_after: ExpiresAfter = ExpiresAfter()
    max_sessions: int = Field(2, ge=CLIENT_SECRET_SESSIONS[0], le=CLIENT_SECRET_SESSIONS[1])
    session: dict[str, Any]


class ClientSecret(TypedDict):
    """A secret for a browser, which opens live sessions and nothing else."""

    value: str
    expires_at: int
    session: dict[str, Any]
