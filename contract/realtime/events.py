"""What a client of a live session sends: one JSON object a message, told apart by `type`."""

from __future__ import annotations

import base64
import binascii
from typing import Any, Literal

from pydantic import Field

from contract.base import Lenient
from contract.body import decode, validated
from contract.errors import INVALID_REQUEST, REQUEST_TOO_LARGE
from contract.realtime.limits import REALTIME_MESSAGE_BYTES
from contract.realtime.session import AudioFormat

EVENT_ID_CHARS = 512


class ClientEvent(Lenient):
    """What every event has. An error that it causes names its `event_id`."""

    event_id: str | None = Field(None, max_length=EVENT_ID_CHARS)


class SessionUpdate(ClientEvent):
    """Changes what is named in `session`."""

    type: Literal["session.update"]
    session: dict[str, Any]


class Append(ClientEvent):
    """More sound, as base64 in the session's format."""

    type: Literal["input_audio_buffer.append"]
    audio: str

    def sound(self, format: AudioFormat) -> bytes:
        """The bytes of `audio`. Raises INVALID_REQUEST for what is no base64, empty, or ends within a sample."""
        try:
            sound = base64.b64decode(self.audio, validate=True)
        except (binascii.Error, ValueError):
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


class Commit(ClientEvent):
    """Ends the turn that is in the buffer."""

    type: Literal["input_audio_buffer.commit"]


class Clear(ClientEvent):
    """Drops what is in the buffer."""

    type: Literal["input_audio_buffer.clear"]


class LedgerRequest(ClientEvent):
    """Asks for the ledger of seconds as it stands."""

    type: Literal["parlance.session.ledger"]


class SessionEnd(ClientEvent):
    """Ends the session once all turns are written down: their events come, then the ledger, then the close."""

    type: Literal["parlance.session.end"]


EVENTS: dict[str, type[ClientEvent]] = {
    "session.update": SessionUpdate,
    "input_audio_buffer.append": Append,
    "input_audio_buffer.commit": Commit,
    "input_audio_buffer.clear": Clear,
    "parlance.session.ledger": LedgerRequest,
    "parlance.session.end": SessionEnd,
}


def read_json(text: str) -> dict[str, Any]:
    """The object in a message. Raises REQUEST_TOO_LARGE, INVALID_JSON, INVALID_REQUEST."""
    if len(text) > REALTIME_MESSAGE_BYTES:
        raise REQUEST_TOO_LARGE(f"the event has {len(text)} characters; send at most {REALTIME_MESSAGE_BYTES} bytes")
    content = decode(text.encode("utf-8", "surrogatepass"))
    if not isinstance(content, dict):
        raise INVALID_REQUEST("the event is no JSON object; send an object with a `type`")
    return content


def event_id_of(content: dict[str, Any]) -> str | None:
    """The id by which an error can name the event, also where the rest is wrong."""
    event_id = content.get("event_id")
    return event_id if isinstance(event_id, str) and len(event_id) <= EVENT_ID_CHARS else None


def read_event(content: dict[str, Any]) -> ClientEvent:
    """The event. Raises INVALID_REQUEST for an unknown `type`, and for fields that are not as they should be."""
    kind = content.get("type")
    model = EVENTS.get(kind) if isinstance(kind, str) else None
    if model is None:
        shown = f"`{kind[:64]}`" if isinstance(kind, str) else "missing" if kind is None else type(kind).__name__
        raise INVALID_REQUEST(f"`type` is {shown}; send one of: {', '.join(EVENTS)}", param="type")
    return validated(model, content)
