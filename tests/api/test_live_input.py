"""What is wrong with what a client of a live session sends: it is told what came and what is allowed, and goes on."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from audio.listener import RATE
from autoscaling.ray_internals import replica
from contract.access import Scope
from contract.errors import ApiError
from contract.limits import MIB
from contract.realtime.limits import REALTIME_BUFFER_S, REALTIME_MESSAGE_BYTES, REALTIME_UNHEARD_S
from deployments.ingress.flows.realtime.sound import Pace
from deployments.ingress.front import live as live_sessions
from tests.api.conftest import Api, app_over
from tests.api.live import PATH, TRANSCRIPTION, WAIT_S, Event, Live, hearing, listening, opened, scripted
from tests.api.ports import at_port
from tests.waiting import until

SECOND = b"\1\0" * RATE


@pytest.fixture
async def ears(api: Api) -> Api:
    hearing(api)
    return scripted(api)


@pytest.fixture
async def live(ears: Api) -> AsyncIterator[Live]:
    """A session that must be well after whatever a test did to it."""
    async with listening(ears) as live:
        yield live
        assert await live.is_well()


def is_told(error: Event, code: str, param: str | None = None, says: str = "") -> bool:
    assert (error["code"], error["param"]) == (code, param), error
    assert says in error["message"]
    return True


async def test_an_unknown_type(live: Live) -> None:
    await live.send("response.create", event_id="mine")
    error = await live.error()
    assert is_told(error, "invalid_request_error", "type", "`response.create`; send one of: session.update")
    assert error["event_id"] == "mine"


@pytest.mark.parametrize("event", [{}, {"type": None}, {"type": 7}, {"type": ["session.update"]}])
async def test_no_type(live: Live, event: Event) -> None:
    await live.socket.send(json.dumps(event))
    assert is_told(await live.error(), "invalid_request_error", "type")


@pytest.mark.parametrize("text", ["", "{", "nonsense", '{"type": NaN}', '{"a": 1, "a": 2}', "[" * 500])
async def test_no_json(live: Live, text: str) -> None:
    await live.socket.send(text)
    assert is_told(await live.error(), "invalid_json")


@pytest.mark.parametrize("text", ["[]", "3", "null", '"input_audio_buffer.commit"'])
async def test_no_object(live: Live, text: str) -> None:
    await live.socket.send(text)
    assert is_told(await live.error(), "invalid_request_error", says="send an object with a `type`")


async def test_a_binary_frame(live: Live) -> None:
    await live.socket.send(SECOND)
    assert is_told(await live.error(), "invalid_request_error", says="send events as text")


@pytest.mark.parametrize("audio", ["!", "AAA", "AAAA\n", "ä", "data:audio/wav;base64,AAAA"])
async def test_no_base64(live: Live, audio: str) -> None:
    await live.send("input_audio_buffer.append", audio=audio)
    assert is_told(await live.error(), "invalid_request_error", "audio", "not base64")


async def test_half_a_sample(live: Live) -> None:
    await live.append(b"\1\0\1")
    assert is_told(await live.error(), "invalid_request_error", "audio", "3 bytes, which ends within a sample")


async def test_no_bytes(live: Live) -> None:
    await live.append(b"")
    assert is_told(await live.error(), "invalid_request_error", "audio", "0 bytes")


@pytest.mark.parametrize("audio", [None, 7, ["AAAA"], {}])
async def test_audio_that_is_no_text(live: Live, audio: Any) -> None:
    await live.send("input_audio_buffer.append", audio=audio)
    assert is_told(await live.error(), "invalid_request_error", "audio")


async def test_an_event_id_that_is_too_long(live: Live) -> None:
    await live.send("input_audio_buffer.clear", event_id="x" * 513)
    assert is_told(await live.error(), "invalid_request_error", "event_id")


async def test_a_message_above_its_bound(live: Live) -> None:
    await live.socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": "A" * REALTIME_MESSAGE_BYTES}))
    assert is_told(await live.error(), "request_too_large", says=f"at most {REALTIME_MESSAGE_BYTES}")


async def test_a_message_that_no_server_reads_ends_the_connection(ears: Api) -> None:
    async with listening(ears) as live:
        with suppress(ConnectionClosed):
            await live.socket.send("A" * 17 * MIB)
        await live.socket.wait_closed()
        assert live.socket.close_code == 1009


async def test_a_message_in_endless_pieces_ends_the_connection(ears: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica, "FRAGMENTS", 100)
    async with listening(ears) as live:
        with suppress(ConnectionClosed):
            await live.socket.send("" for _ in range(102))
        async with asyncio.timeout(WAIT_S):
            await live.socket.wait_closed()
        assert live.socket.close_code == 1006


async def test_a_commit_of_nothing(live: Live) -> None:
    await live.send("input_audio_buffer.commit")
    assert is_told(await live.error(), "input_audio_buffer_commit_empty")


async def test_a_commit_of_too_little(live: Live) -> None:
    await live.update(turn_detection=None)
    await live.speak(0.099)
    await live.send("input_audio_buffer.commit")
    assert is_told(await live.error(), "input_audio_buffer_commit_empty", says="0.099 s")
    await live.speak(0.001)
    await live.send("input_audio_buffer.commit")
    await live.text()
    await live.update(turn_detection={"type": "server_vad"})


@pytest.mark.parametrize(
    ("of_input", "param", "says"),
    [
        ({"turn_detection": {"type": "semantic_vad"}}, "turn_detection.type", "`semantic_vad`; send `server_vad`"),
        ({"turn_detection": {}}, "turn_detection.type", "server_vad"),
        ({"turn_detection": {"type": "server_vad", "threshold": 1.1}}, "turn_detection.threshold", "1"),
        ({"turn_detection": {"type": "server_vad", "silence_duration_ms": 199}}, "silence_duration_ms", "200"),
        ({"turn_detection": {"type": "server_vad", "prefix_padding_ms": 5001}}, "prefix_padding_ms", "5000"),
        ({"format": {"type": "audio/opus"}}, "format.type", "audio/pcmu"),
        ({"format": {"type": "audio/pcm", "rate": 7_999}}, "format.rate", "8000"),
        ({"format": {"type": "audio/pcm", "rate": 48_001}}, "format.rate", "48000"),
        ({"transcription": "whisper-1"}, "transcription", "send an object"),
        ({"transcription": {"language": "klingon"}}, "language", ""),
        ({"transcription": {"model": "whisper-1"}}, "model", "there is no model `whisper-1` here"),
    ],
)  # fmt: skip
async def test_settings_that_cannot_be(live: Live, of_input: Event, param: str, says: str) -> None:
    await live.send("session.update", session={"type": "transcription", "audio": {"input": of_input}})
    error = await live.error()
    assert error["param"].endswith(param)
    assert says in error["message"]


async def test_a_language_that_the_model_lacks(ears: Api) -> None:
    async with listening(ears) as live:
        settings = {"transcription": {"model": "whisper-large-v3", "language": "tlh"}}
        await live.send("session.update", session={"type": "transcription", "audio": {"input": settings}})
        assert is_told(await live.error(), "language_not_supported", "language")
    whisper = ears.service.catalog.transcription["whisper-large-v3"]
    assert ears.engine(whisper.deployment).warmed == 0


@pytest.mark.parametrize("session", [{}, {"type": "realtime"}, {"type": "transcription", "audio": []}])
async def test_a_session_of_another_kind(live: Live, session: Event) -> None:
    await live.send("session.update", session=session)
    assert (await live.error())["code"] == "invalid_request_error"


async def test_a_format_that_comes_too_late(live: Live) -> None:
    await live.pause(0.1)
    settings = {"format": {"type": "audio/pcmu"}}
    await live.send("session.update", session={"type": "transcription", "audio": {"input": settings}})
    assert is_told(await live.error(), "invalid_request_error", "session", "open another session")


async def test_turns_cannot_change_within_a_turn(live: Live) -> None:
    await live.speak(0.5)
    await live.next("input_audio_buffer.speech_started")
    settings = {"turn_detection": None}
    await live.send("session.update", session={"type": "transcription", "audio": {"input": settings}})
    assert is_told(await live.error(), "invalid_request_error", "session.audio.input.turn_detection")


async def test_sound_after_the_end(ears: Api) -> None:
    async def slow(seconds: float) -> str:
        await asyncio.sleep(0.2)
        return "late"

    hearing(ears, slow)
    async with listening(ears) as live:
        await live.speak(0.5)
        await live.send("parlance.session.end")
        await live.append(SECOND, event_id="late")
        events = [json.loads(text) async for text in live.socket]
    (error,) = (event["error"] for event in events if event["type"] == "error")
    assert error["event_id"] == "late"
    assert is_told(error, "invalid_request_error", says="ending")
    assert events[-1]["ledger"]["heard_s"] == pytest.approx(0.5, abs=0.04)


async def test_more_sound_at_once_than_fits(live: Live) -> None:
    await live.append(bytes(2 * RATE * REALTIME_BUFFER_S + 2))
    error = await live.error()
    assert is_told(error, "input_audio_buffer_full", says=f"at most {REALTIME_BUFFER_S} s")
    await live.append(bytes(2 * RATE * REALTIME_BUFFER_S))


async def test_sound_ahead_of_an_engine_that_does_not_keep_up(ears: Api) -> None:
    go = asyncio.Event()

    async def stuck(seconds: float) -> str:
        await go.wait()
        return "at last"

    hearing(ears, stuck)
    async with listening(ears) as live:
        await live.append(SECOND * 28)
        await live.append(SECOND * 3, event_id="too early")
        await live.next("input_audio_buffer.speech_started")
        error = await live.error()
        assert is_told(error, "input_audio_buffer_full", "audio", "was not taken")
        assert error["event_id"] == "too early"
        assert 0 < error["retry_after_ms"] <= 5000
        go.set()
        ledger = await live.end()
    assert ledger["received_s"] == 28


@pytest.mark.parametrize(
    ("waiting_s", "seconds", "fits"),
    [(0, 30, True), (0, 30.001, False), (29, 1, True), (29, 1.001, False), (10_000, 1, False)],
)
def test_what_fits_ahead_of_real_time(waiting_s: float, seconds: float, fits: bool) -> None:
    pace = Pace()
    pace.take(min(29.0, waiting_s) or 0.0, 0.0, 0.0)
    try:
        pace.take(seconds, waiting_s, 0.0)
    except ApiError:
        assert not fits
    else:
        assert fits


def test_what_is_sent_behind_refused_sound_is_refused_too() -> None:
    pace = Pace()
    pace.take(30.0, 0.0, 0.0)
    with pytest.raises(ApiError) as first:
        pace.take(1.0, 30.0, 0.0)
    again_s = first.value.extra["retry_after_ms"] / 1000
    with pytest.raises(ApiError):
        pace.take(1.0, 0.0, again_s - 0.001)
    pace.take(1.0, 0.0, again_s)


def test_the_pace_of_speech_is_never_ahead() -> None:
    pace = Pace()
    for second in range(200):
        pace.take(1.0, min(REALTIME_UNHEARD_S - 1.0, second), float(second))


async def test_a_budget_that_ends_in_the_middle(ears: Api) -> None:
    price = ears.service.catalog.transcription["voxtral-mini-transcribe"].cost_micro_eur(audio_seconds=60)
    await ears.limit(price)
    async with listening(ears, key=await ears.key(*Scope)) as live:
        for _ in range(2):
            await live.append(SECOND * 25)
            await live.pause()
            await live.text()
        await live.append(SECOND * 25)
        await live.pause()
        failed = await live.next(f"{TRANSCRIPTION}.failed")
        error = await live.error()
        assert (error["code"], failed["error"]["code"]) == ("org_spend_limit", "org_spend_limit")
        await live.socket.wait_closed()
    assert live.socket.close_code == 1008


async def test_a_budget_that_is_spent(ears: Api) -> None:
    await ears.limit(0)
    assert await refused(ears, **bearer(await ears.key(*Scope))) == (402, "org_spend_limit")


async def refused(api: Api, path: str = PATH, **options: Any) -> tuple[int, str]:
    """Status and code of the reply to an upgrade."""
    async with at_port(app_over(api.service)) as address:
        with pytest.raises(InvalidStatus) as error:
            await connect(address.replace("http", "ws") + path, **options)
    response = error.value.response
    assert response.headers["x-request-id"].startswith("req_")
    return response.status_code, json.loads(response.body)["error"]["code"]


def bearer(key: str) -> dict[str, Any]:
    return {"additional_headers": {"Authorization": f"Bearer {key}"}}


async def test_no_key(ears: Api) -> None:
    assert await refused(ears) == (401, "missing_api_key")


async def test_a_wrong_key(ears: Api) -> None:
    assert await refused(ears, **bearer("prl_wrong")) == (401, "invalid_api_key")


async def test_a_client_secret_that_was_changed(ears: Api) -> None:
    secret = (
        await ears.send("POST", "/v1/realtime/client_secrets", json={"session": {"type": "transcription"}})
    ).json()["value"]
    payload, kid, signature = secret.removeprefix("ek_").split(".")
    forged = base64.urlsafe_b64encode(b'["x",99999999999,"{}"]').decode().rstrip("=")
    for wrong in (f"ek_{forged}.{kid}.{signature}", f"ek_{payload}.{kid}.AAAA", "ek_", "ek_a.b", "ek_ä.b.c"):
        assert await refused(ears, **bearer(wrong.encode().decode("latin-1"))) == (401, "invalid_api_key")


async def test_a_key_without_the_scope(ears: Api) -> None:
    assert await refused(ears, **bearer(await ears.key(Scope.CHAT))) == (403, "missing_scope")


async def test_a_page_of_another_origin(ears: Api) -> None:
    options = bearer(ears.everything) | {"origin": "https://evil.example"}
    assert await refused(ears, **options) == (403, "foreign_origin")


async def test_a_model_that_is_not_here(ears: Api) -> None:
    options = bearer(ears.everything)
    assert await refused(ears, "/v1/realtime?model=gpt-realtime", **options) == (404, "model_not_found")


async def test_a_session_that_speaks(ears: Api) -> None:
    options = bearer(ears.everything)
    assert await refused(ears, "/v1/realtime?intent=conversation", **options) == (400, "invalid_request_error")


async def test_no_websocket_at_this_path(ears: Api) -> None:
    assert await refused(ears, "/v1/models", **bearer(ears.everything)) == (404, "not_found")


async def test_more_sessions_than_the_process_has(ears: Api) -> None:
    ears.service.live.most = 1
    async with listening(ears) as live:
        assert await refused(ears, **bearer(ears.everything)) == (503, "overloaded")
        assert await live.is_well()


async def test_one_organisation_has_half_of_the_sessions(ears: Api) -> None:
    ears.service.live.most = 4
    await ears.organisation("other", "pro")
    async with at_port(app_over(ears.service)) as address, AsyncExitStack() as stack:
        for _ in range(2):
            live = await stack.enter_async_context(opened(ears, address))
        assert await refused(ears, **bearer(ears.everything)) == (429, "rate_limit_exceeded")
        other = await stack.enter_async_context(opened(ears, address, key=await ears.key(*Scope, org="other")))
        assert await other.is_well()
        assert await live.is_well()


async def test_one_organisation_holds_half_of_the_sound(ears: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_sessions, "REALTIME_SOUND_BYTES", 4 * RATE)
    async with listening(ears) as live:
        await live.update(turn_detection=None)
        await live.append(SECOND)
        await live.append(SECOND, event_id="too much")
        error = await live.error()
        assert is_told(error, "rate_limit_exceeded", says="your organisation")
        assert error["event_id"] == "too much"
        await live.send("input_audio_buffer.commit")
        await live.text()
        assert (await live.end())["received_s"] == 1


async def test_more_sessions_than_the_key_has(ears: Api) -> None:
    await ears.organisation("small", "free")
    key = await ears.key(*Scope, org="small")
    async with at_port(app_over(ears.service)) as address:
        async with AsyncExitStack() as stack:
            for _ in range(4):
                live = await stack.enter_async_context(opened(ears, address, key=key))
            assert await refused(ears, **bearer(key)) == (429, "rate_limit_exceeded")
            assert await live.is_well()
        await until(lambda: ears.state.rates.open_streams == 0)
        async with opened(ears, address, key=key) as live:
            assert await live.is_well()
