"""Parts of events from the server of a live session. Names that begin with `parlance.` are additions to OpenAI's."""

from __future__ import annotations

from typing import Any

from contract.errors import ApiError
from contract.realtime.session import AudioInput

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
