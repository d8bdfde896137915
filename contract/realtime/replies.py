"""What a live session tells its client. Names that begin with `parlance.` are additions to OpenAI's events."""

from __future__ import annotations

from typing import Any

from contract.errors import ApiError
from contract.ids import random_id
from contract.realtime.session import AudioInput

Event = dict[str, Any]

TRANSCRIPTION = "conversation.item.input_audio_transcription"


def _event(type: str, **members: Any) -> Event:
    return {"type": type, "event_id": f"event_{random_id()}", **members}


def session_object(id: str, config: AudioInput, expires_at: int) -> Event:
    """A session as its events show it. `expires_at` is in seconds since 1970."""
    return {
        "id": id,
        "object": "realtime.transcription_session",
        "type": "transcription",
        "expires_at": expires_at,
        "audio": {"input": config.object()},
        "include": None,
    }


def session_created(session: Event) -> Event:
    """The first event: what the session is set to."""
    return _event("session.created", session=session)


def session_updated(session: Event) -> Event:
    """What the session is set to by now."""
    return _event("session.updated", session=session)


def session_expiring(why: str, closes_in_s: int) -> Event:
    """The session ends soon: `time_limit`, or `draining` where the server goes. A new one may be opened now."""
    return _event("parlance.session.expiring", why=why, closes_in_s=closes_in_s)


def session_ledger(ledger: Event, *, is_last: bool) -> Event:
    """The ledger of seconds; the last one comes right before the close."""
    return _event("parlance.session.ledger", ledger=ledger, is_last=is_last)


def speech_started(item_id: str, audio_start_ms: int) -> Event:
    """Somebody speaks; `audio_start_ms` counts from the first sound of the session, as all times."""
    return _event("input_audio_buffer.speech_started", item_id=item_id, audio_start_ms=audio_start_ms)


def speech_stopped(item_id: str, audio_end_ms: int) -> Event:
    """Nobody speaks any more."""
    return _event("input_audio_buffer.speech_stopped", item_id=item_id, audio_end_ms=audio_end_ms)


def cleared() -> Event:
    """The buffer is empty."""
    return _event("input_audio_buffer.cleared")


def committed(item_id: str, previous_item_id: str | None) -> list[Event]:
    """A turn is complete: it is an item of the conversation from now on, without a text yet."""
    item = {
        "id": item_id,
        "object": "realtime.item",
        "type": "message",
        "status": "completed",
        "role": "user",
        "content": [{"type": "input_audio", "transcript": None}],
    }
    return [
        _event("input_audio_buffer.committed", item_id=item_id, previous_item_id=previous_item_id),
        _event("conversation.item.added", item=item, previous_item_id=previous_item_id),
        _event("conversation.item.done", item=item, previous_item_id=previous_item_id),
    ]


def delta(item_id: str, text: str) -> Event:
    """More words of a turn."""
    return _event(f"{TRANSCRIPTION}.delta", item_id=item_id, content_index=0, delta=text)


def completed(item_id: str, transcript: str, seconds: float, ledger: Event) -> Event:
    """The text of a turn, the seconds of it that are billed, and the ledger of the session up to now."""
    usage = {"type": "duration", "seconds": seconds}
    return _event(
        f"{TRANSCRIPTION}.completed",
        item_id=item_id,
        content_index=0,
        transcript=transcript,
        usage=usage,
        parlance={"ledger": ledger},
    )


def failed(item_id: str, error: ApiError, ledger: Event) -> Event:
    """A turn whose text nobody will know, and why."""
    return _event(
        f"{TRANSCRIPTION}.failed",
        item_id=item_id,
        content_index=0,
        error=_error_object(error),
        parlance={"ledger": ledger},
    )


def error_event(error: ApiError, event_id: str | None) -> Event:
    """An error that the session survives, unless a close follows; `event_id` is of the event that caused it."""
    return _event("error", error=_error_object(error) | {"event_id": event_id})


def _error_object(error: ApiError) -> Event:
    content: Event = dict(error.body()["error"])
    if error.retry_after_s is not None:
        content.setdefault("retry_after_ms", 1000 * error.retry_after_s)
    return content
