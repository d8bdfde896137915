"""Events from the client of a live session, one JSON object in each message, and parts of those from the server.

Names that begin with `parlance.` are additions to OpenAI's.
"""

from __future__ import annotations

import binascii
from typing import Any, Literal, get_args

from pydantic import Field

from contract.base import Lenient
from contract.body import decode, validated
from contract.errors import INVALID_REQUEST, REQUEST_TOO_LARGE, ApiError
from contract.realtime.limits import REALTIME_MESSAGE_BYTES
from contract.realtime.session import AudioFormat, AudioInput

EVENT_ID_CHARS = 512


class ClientEvent(Lenient):
    """Base of every event. An error that the event causes names its `event_id`."""

    event_id: str | None = Field(None, max_length=EVENT_ID_CHARS)


class SessionUpdate(ClientEvent):
    """Changes the settings that `session` names."""

    type: Literal["session.update"]
    session: dict[str, Any]


class Append(ClientEvent):
    """More audio, as base64 in the format of the session."""

    type: Literal["input_audio_buffer.append"]
    audio: str

    def seconds(self, format: AudioFormat) -> float:
        """Returns the seconds of audio, from the length of `audio` alone."""
        length = len(self.audio) // 4 * 3 - self.audio[-2:].count("=")
        return length / format.sample_bytes / format.sample_rate

    def sound(self, format: AudioFormat) -> bytes:
        """Returns the bytes of `audio`. Raises INVALID_REQUEST if it is not base64, empty, or ends within a sample."""
        try:
            sound = binascii.a2b_base64(self.audio, strict_mode=True)
        except ValueError:
            raise INVALID_REQUEST(
                "`audio` is not base64; send the samples of the session's format", param="audio"
            ) from None
        if not sound:
            raise INVALID_REQUEST("`audio` holds 0 bytes; send at least one sample", param="audio")
        if len(sound) % format.sample_bytes:
            raise INVALID_REQUEST(
                f"`audio` holds {len(sound)} bytes, which ends within a sample; send a multiple of 2", param="audio"
            )
        return sound


class Signal(ClientEvent):
    """An event without members.

    `commit` ends the turn that is in the buffer, and `clear` drops the contents of the buffer. `session.ledger`
    requests the current ledger of seconds. `session.end` ends the session after all turns are transcribed: their events
    come, then the ledger, then the close.
    """

    type: Literal[
        "input_audio_buffer.commit", "input_audio_buffer.clear", "parlance.session.ledger", "parlance.session.end"
    ]


AnyEvent = SessionUpdate | Append | Signal
EVENTS: dict[str, type[AnyEvent]] = {
    name: model for model in get_args(AnyEvent) for name in get_args(model.model_fields["type"].annotation)
}


def read_json(text: str) -> dict[str, Any]:
    """Returns the object in a message. Raises REQUEST_TOO_LARGE, INVALID_JSON, INVALID_REQUEST."""
    if len(text) > REALTIME_MESSAGE_BYTES:
        raise REQUEST_TOO_LARGE(f"the event has {len(text)} characters; send at most {REALTIME_MESSAGE_BYTES} bytes")
    content = decode(text.encode("utf-8", "surrogatepass"))
    if not isinstance(content, dict):
        raise INVALID_REQUEST("the event is no JSON object; send an object with a `type`")
    return content


def event_id_of(content: dict[str, Any]) -> str | None:
    """Returns the id by which an error names the event, even if the rest is invalid."""
    event_id = content.get("event_id")
    return event_id if isinstance(event_id, str) and len(event_id) <= EVENT_ID_CHARS else None


def read_event(content: dict[str, Any]) -> AnyEvent:
    """Returns the event. Raises INVALID_REQUEST for an unknown `type` and for invalid fields."""
    kind = content.get("type")
    model = EVENTS.get(kind) if isinstance(kind, str) else None
    if model is None:
        shown = f"`{kind[:64]}`" if isinstance(kind, str) else "missing" if kind is None else type(kind).__name__
        raise INVALID_REQUEST(f"`type` is {shown}; send one of: {', '.join(EVENTS)}", param="type")
    return validated(model, content)


Event = dict[str, Any]

BUFFER = "input_audio_buffer"
TRANSCRIPTION = "conversation.item.input_audio_transcription"
REASON_BYTES = 123
"""Most bytes of the reason of a close, by RFC 6455."""


def session_object(id: str, config: AudioInput, expires_at: int) -> Event:
    """Returns a session in the form of its events. `expires_at` is in seconds since 1970."""
    return {
        "id": id,
        "object": "realtime.transcription_session",
        "type": "transcription",
        "expires_at": expires_at,
        "audio": {"input": config.object()},
        "include": None,
    }


def item_object(id: str) -> Event:
    """Returns a turn as an item of the conversation, without a text yet."""
    return {
        "id": id,
        "object": "realtime.item",
        "type": "message",
        "status": "completed",
        "role": "user",
        "content": [{"type": "input_audio", "transcript": None}],
    }


def error_object(error: ApiError) -> Event:
    """Returns an error in the form of the events."""
    content: Event = dict(error.body()["error"])
    if error.retry_after_s is not None:
        content.setdefault("retry_after_ms", 1000 * error.retry_after_s)
    return content


def close_reason(sentence: str) -> str:
    """Returns the part of a sentence that fits into a close."""
    return sentence.encode()[:REASON_BYTES].decode(errors="ignore")
