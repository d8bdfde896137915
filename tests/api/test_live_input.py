"""Wrong input of a live session: its client reads what came and what is allowed, and the session goes on."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, cast
from unittest.mock import ANY

import pytest

from audio.listener import RATE
from concurrency.allowance import Allowance
from contract.access import Scope
from contract.realtime.limits import REALTIME_BUFFER_S, REALTIME_MESSAGE_BYTES
from deployments.ingress.flows.realtime import session, turns
from deployments.ingress.front import live as live_sessions
from tests.api.conftest import Api
from tests.api.live import (
    MODEL,
    SECOND,
    TRANSCRIPTION,
    Live,
    has_error,
    hearing,
    listening,
    scripted_speech,
    transcriber_of,
)
from tests.waiting import until

__all__ = ["scripted_speech"]


def sound_of(audio: Any) -> str:
    return json.dumps({"type": "input_audio_buffer.append", "audio": audio})


def setting(**session: Any) -> str:
    return json.dumps({"type": "session.update", "session": session})


def of_input(**settings: Any) -> str:
    return setting(type="transcription", audio={"input": settings})


def detection(**settings: Any) -> str:
    return of_input(turn_detection={"type": "server_vad"} | settings)


INVALID = "invalid_request_error"
WRONG: list[tuple[str | bytes, str, str | None, str]] = [
    *((json.dumps({"type": kind}), INVALID, "type", "") for kind in (None, 7, ["session.update"])),
    ("{}", INVALID, "type", ""),
    *((text, "invalid_json", None, "") for text in ("", "{", "nonsense", '{"type": NaN}', '{"a": 1, "a": 2}')),
    ("[" * 500, "invalid_json", None, ""),
    *((text, INVALID, None, "send an object with a `type`") for text in ("[]", "3", "null", '"a"')),
    (SECOND, INVALID, None, "send events as text"),
    *((sound_of(audio), INVALID, "audio", "not base64") for audio in ("!", "AAA", "AAAA\n", "ä", "data:a;base64,AAAA")),
    (sound_of("AQAB"), INVALID, "audio", "3 bytes, which ends within a sample"),
    (sound_of(""), INVALID, "audio", "0 bytes"),
    *((sound_of(audio), INVALID, "audio", "") for audio in (None, 7, ["AAAA"], {})),
    (json.dumps({"type": "input_audio_buffer.clear", "event_id": "x" * 513}), INVALID, "event_id", ""),
    (sound_of("A" * REALTIME_MESSAGE_BYTES), "request_too_large", None, f"at most {REALTIME_MESSAGE_BYTES}"),
    ('{"type": "input_audio_buffer.commit"}', "input_audio_buffer_commit_empty", None, ""),
    (
        of_input(turn_detection={"type": "semantic_vad"}),
        INVALID,
        "turn_detection.type",
        "`semantic_vad`; send `server_vad`",
    ),
    (of_input(turn_detection={}), INVALID, "turn_detection.type", "server_vad"),
    (detection(threshold=1.1), INVALID, "turn_detection.threshold", "1"),
    (detection(silence_duration_ms=199), INVALID, "silence_duration_ms", "200"),
    (detection(prefix_padding_ms=5001), INVALID, "prefix_padding_ms", "5000"),
    (of_input(format={"type": "audio/opus"}), INVALID, "format.type", "audio/pcmu"),
    (of_input(format={"type": "audio/pcm", "rate": 7_999}), INVALID, "format.rate", "8000"),
    (of_input(format={"type": "audio/pcm", "rate": 48_001}), INVALID, "format.rate", "48000"),
    (of_input(transcription="whisper-1"), INVALID, "transcription", "send an object"),
    (of_input(transcription={"language": "klingon"}), INVALID, "language", ""),
    *(
        (setting(**kind), INVALID, ANY, "")
        for kind in ({}, {"type": "realtime"}, {"type": "transcription", "audio": []})
    ),
]
"""Messages, and the code, the end of the field's name and a part of the sentence that they are answered with."""


@pytest.fixture
async def live(api: Api) -> AsyncIterator[Live]:
    """A session that must be well after whatever a test did to it."""
    async with listening(api) as live:
        yield live
        assert await live.is_well()


async def test_what_is_wrong_is_said_and_the_session_goes_on(live: Live) -> None:
    unexpected = []
    for message, code, param, says in WRONG:
        await live.socket.send(message)
        error = await live.error()
        is_field = error["param"] == param or (isinstance(param, str) and str(error["param"]).endswith(param))
        if not (error["code"] == code and is_field and says in error["message"]):
            unexpected.append((message[:80], error))
    assert unexpected == []
    await live.send("response.create", event_id="mine")
    error = await live.error()
    assert has_error(error, INVALID, "type", "`response.create`; send one of: session.update")
    assert error["event_id"] == "mine"


SOUND = json.dumps({"type": "input_audio_buffer.append", "audio": base64.b64encode(bytes(320)).decode()})


@pytest.mark.parametrize(
    ("message", "weight", "others"),
    [
        (SOUND, 1, 0),
        ('{"type": "parlance.session.ledger"}', 5, 0),
        ('{"type": "input_audio_buffer.commit"}', 5, 0),
        ("", 5, 0),
        (b"", 5, 0),
        ("x" * 8 * 1024 * 9, 50, 0),
        (bytes(8 * 1024 * 9), 50, 0),
        (SOUND, 1, 1),
        (SOUND, 1.5, 2),
        (SOUND, 2, 3),
    ],
    ids=["sound", "ledger", "refused", "empty", "binary", "refused and long", "binary and long"]
    + [f"one of {count} sessions" for count in (2, 3, 4)],
)
async def test_events_are_read_at_a_pace(
    api: Api, monkeypatch: pytest.MonkeyPatch, message: str | bytes, weight: float, others: int
) -> None:
    monkeypatch.setattr(live_sessions, "REALTIME_FULL_RATE_SESSIONS", 2)
    used: list[float] = []
    wait_s = 0.05

    class Slow(Allowance):
        def use(self, units: float = 1) -> float:
            used.append(units)
            return wait_s

    monkeypatch.setattr(session, "Allowance", Slow)
    async with listening(api) as live, AsyncExitStack() as stack:
        for _ in range(others):
            stack.enter_context(api.service.live.session((await api.caller()).org_id, cast(Any, object())))
        used.clear()
        began_s = asyncio.get_running_loop().time()
        for _ in range(4):
            await live.socket.send(message)
        await until(lambda: len(used) == 4)
        assert asyncio.get_running_loop().time() - began_s > 3 * wait_s
    assert used == 4 * [pytest.approx(weight, rel=0.1)]


async def test_a_commit_of_too_little(live: Live) -> None:
    await live.update(turn_detection=None)
    await live.speak(0.099)
    await live.send("input_audio_buffer.commit")
    assert has_error(await live.error(), "input_audio_buffer_commit_empty", says="0.099 s")
    await live.speak(0.001)
    await live.send("input_audio_buffer.commit")
    await live.text()
    await live.update(turn_detection={"type": "server_vad"})


async def test_settings_that_cannot_change_now(api: Api, live: Live) -> None:
    async def refused(error: str, param: str, says: str = "", **settings: Any) -> None:
        await live.socket.send(of_input(**settings))
        assert has_error(await live.error(), error, param, says)

    speaking = {"model": "whisper-large-v3", "language": "tlh"}
    await refused("language_not_supported", "language", transcription=speaking)
    assert transcriber_of(api, "whisper-large-v3").warmed == 0
    await live.pause(0.1)
    await refused(INVALID, "session", "open another session", format={"type": "audio/pcmu"})
    await live.speak(0.5)
    await live.next("input_audio_buffer.speech_started")
    await refused(INVALID, "session.audio.input.turn_detection", turn_detection=None)


async def test_sound_after_the_end(api: Api) -> None:
    async def slow(seconds: float) -> str:
        await asyncio.sleep(0.2)
        return "late"

    hearing(api, slow)
    async with listening(api) as live:
        await live.speak(0.5)
        await live.send("parlance.session.end")
        await live.append(SECOND, event_id="late")
        events = [json.loads(text) async for text in live.socket]
    (error,) = (event["error"] for event in events if event["type"] == "error")
    assert error["event_id"] == "late"
    assert has_error(error, "invalid_request_error", says="ending")
    assert events[-1]["ledger"]["heard_s"] == pytest.approx(0.5, abs=0.04)


async def test_more_sound_at_once_than_fits(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    says = f"at most {REALTIME_BUFFER_S} s"
    # What does not fit is refused before it is decoded.
    await live.send("input_audio_buffer.append", audio="!" * (4 * 2 * RATE * REALTIME_BUFFER_S // 3 + 4))
    assert has_error(await live.error(), "input_audio_buffer_full", says=says)
    monkeypatch.setattr(turns, "REALTIME_SPEED", 1_000_000)
    await live.append(bytes(2 * RATE * REALTIME_BUFFER_S + 2))
    assert has_error(await live.error(), "input_audio_buffer_full", says=says)
    await live.append(bytes(2 * RATE * REALTIME_BUFFER_S))


async def test_sound_ahead_of_an_engine_that_does_not_keep_up(api: Api) -> None:
    go = asyncio.Event()

    async def stuck(seconds: float) -> str:
        await go.wait()
        return "at last"

    hearing(api, stuck)
    async with listening(api) as live:
        await live.append(SECOND * 28)
        await live.append(SECOND * 3, event_id="too early")
        await live.next("input_audio_buffer.speech_started")
        error = await live.error()
        assert has_error(error, "input_audio_buffer_full", "audio", "was not taken")
        assert error["event_id"] == "too early"
        assert 0 < error["retry_after_ms"] <= 5000
        go.set()
        ledger = await live.end()
    assert ledger["received_s"] == 28


async def test_a_budget_that_ends_in_the_middle(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "REALTIME_SPEED", 1_000_000)
    await api.limit(api.service.catalog.transcription[MODEL].cost_micro_eur(audio_seconds=60))
    async with listening(api, key=await api.key(*Scope)) as live:
        for _ in range(2):
            await live.append(SECOND * 25)
            await live.pause()
            await live.text()
        await live.append(SECOND * 10)
        await live.pause()
        failed = await live.next(f"{TRANSCRIPTION}.failed")
        error = await live.error()
        assert (error["code"], failed["error"]["code"]) == ("org_spend_limit", "org_spend_limit")
        assert await live.closed() == 1008
