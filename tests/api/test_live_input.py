"""Wrong or strange events and frames of live sessions: their clients read what came, and the sessions go on."""

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any, cast

import pytest
from websockets.exceptions import ConnectionClosed

from audio.listener import RATE
from autoscaling.ray_internals import sockets
from benchmarks.attacks.frames import CONTINUATION, HANDSHAKE, PING, PONG, TEXT, event, frame
from concurrency.allowance import Allowance
from contract.limits import MIB
from contract.realtime.limits import REALTIME_BUFFER_S, REALTIME_MESSAGE_BYTES
from deployments.ingress.flows.realtime import session, turns
from deployments.ingress.front import concurrency
from deployments.ingress.front import live as live_sessions
from tests.api.conftest import Api, app_over
from tests.api.live import PATH, SECOND, WAIT_S, Live, has_error, hearing, listening, scripted_speech, transcriber_of
from tests.api.ports import at_port
from tests.docs.pages import ROOT
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
SET = "session.audio.input"
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
    (detection(type="semantic_vad"), INVALID, f"{SET}.turn_detection.type", "`semantic_vad` was sent; send"),
    (of_input(turn_detection={}), INVALID, f"{SET}.turn_detection.type", "is missing"),
    (of_input(turn_detection={"type": []}), INVALID, f"{SET}.turn_detection.type", "an array was sent"),
    (detection(threshold=1.1), INVALID, f"{SET}.turn_detection.threshold", "1"),
    (detection(silence_duration_ms=199), INVALID, f"{SET}.turn_detection.silence_duration_ms", "200"),
    (detection(prefix_padding_ms=5001), INVALID, f"{SET}.turn_detection.prefix_padding_ms", "5000"),
    (of_input(format={"type": "audio/opus"}), INVALID, f"{SET}.format.type", "audio/pcmu"),
    (of_input(format={"type": "audio/pcm", "rate": 7_999}), INVALID, f"{SET}.format.rate", "8000"),
    (of_input(format={"type": "audio/pcm", "rate": 48_001}), INVALID, f"{SET}.format.rate", "48000"),
    (of_input(transcription="whisper-1"), INVALID, f"{SET}.transcription", "a string was sent; send an object"),
    (of_input(transcription={"language": "klingon"}), INVALID, f"{SET}.transcription.language", ""),
    (setting(type="transcription", audio=[]), INVALID, "session.audio", "an array was sent; send an object"),
    (setting(), INVALID, "session.type", "is missing"),
    (setting(type="realtime"), INVALID, "session.type", "`realtime` was sent; send `transcription`"),
]
"""Messages, and the code, the field and a part of the sentence that they are answered with."""


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
        if not (error["code"] == code and error["param"] == param and says in error["message"]):
            unexpected.append((message[:80], error))
    assert unexpected == []
    await live.send("response.create", event_id="mine")
    error = await live.error()
    assert has_error(error, INVALID, "type", "`response.create`; send one of: session.update")
    assert error["event_id"] == "mine"


SOUND = json.dumps({"type": "input_audio_buffer.append", "audio": base64.b64encode(bytes(320)).decode()})
PACED: dict[str, tuple[str | bytes, float, int]] = {
    "sound": (SOUND, 1, 0),
    "ledger": ('{"type": "parlance.session.ledger"}', 5, 0),
    "refused": ('{"type": "input_audio_buffer.commit"}', 5, 0),
    "empty": ("", 5, 0),
    "binary": (b"", 5, 0),
    "refused and long": ("x" * 8 * 1024 * 9, 50, 0),
    "binary and long": (bytes(8 * 1024 * 9), 50, 0),
    "one of 2 sessions": (SOUND, 1, 1),
    "one of 3 sessions": (SOUND, 1.5, 2),
    "one of 4 sessions": (SOUND, 2, 3),
}


@pytest.mark.parametrize("name", PACED)
async def test_events_are_read_at_a_pace(api: Api, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    message, weight, others = PACED[name]
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
    await refused("language_not_supported", f"{SET}.transcription.language", transcription=speaking)
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


HALF_A_FRAME = frame(TEXT, b"{}")[:-1]


@pytest.mark.parametrize(("message", "code"), [(b"A" * 17 * MIB, 1009), (b"\xc3", 1007)], ids=["17 MiB", "not UTF-8"])
async def test_a_message_that_no_server_reads_ends_the_connection(api: Api, message: bytes, code: int) -> None:
    async with listening(api) as live:
        with suppress(ConnectionClosed):
            await live.socket.send(message, text=True)
        assert await live.closed() == code


@pytest.mark.parametrize("kind", [PING, PONG, CONTINUATION])
async def test_frames_that_are_no_messages_have_an_allowance(
    api: Api, monkeypatch: pytest.MonkeyPatch, kind: int
) -> None:
    is_piece = kind == CONTINUATION
    monkeypatch.setattr(sockets, "CONTINUATION_FRAMES" if is_piece else "CONTROL_FRAMES", (1e-6, 100))
    for count in (99, 100, 101):
        async with listening(api, ping_interval=None) as live:
            pieces = frame(TEXT, is_last=False) + (count - 1) * frame(CONTINUATION, is_last=False) + frame(CONTINUATION)
            live.socket.transport.write(pieces if is_piece else count * frame(kind) + frame(TEXT))
            if count > 100:
                assert await live.closed() == 1008
            else:
                assert has_error(await live.error(), "invalid_json")
                assert await live.is_well()


async def test_a_silent_session_is_pinged_more_often_than_haproxy_ends_a_silent_connection(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    (ends_s,) = re.findall(r"\\n    timeout tunnel (\d+)s\\n", (ROOT / "deployments/haproxy").read_text())
    assert (sockets._BOUNDED.Config(None).ws_ping_interval, int(ends_s)) == (20, 75)
    monkeypatch.setattr(sockets._BOUNDED, "Config", partial(sockets._config, ws_ping_interval=0.01))
    async with at_port(app_over(api.service)) as address:
        reader, writer = await upgraded(api, address)
        async with asyncio.timeout(WAIT_S):
            await reader.readuntil(b"\r\n\r\n")
            await reader.readuntil(bytes([0x80 | PING, 4]))  # the head of a frame of four bytes
        writer.transport.abort()


async def test_messages_in_one_read_are_answered_in_turn(api: Api) -> None:
    async with listening(api) as live:
        live.socket.transport.write(50 * frame(TEXT) + frame(TEXT, b'{"type": "parlance.session.ledger"}'))
        for _ in range(50):
            assert has_error(await live.error(), "invalid_json")
        async with asyncio.timeout(WAIT_S):
            await (await live.socket.ping())
        await live.next("parlance.session.ledger")
        assert await live.is_well()


@pytest.mark.parametrize("begun", [frame(TEXT, b"{", is_last=False), HALF_A_FRAME], ids=["a message", "half a frame"])
async def test_a_message_that_has_begun_is_whole_in_time(
    api: Api, monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    monkeypatch.setattr(sockets, "BODY_IDLE_S", 0.1)
    async with listening(api) as live:
        assert await live.is_well()
        live.socket.transport.write(begun)
        assert await live.closed() == 1008
        assert "not whole within" in live.socket.close_reason


@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.parametrize("bound", ["BODIES_OF_KEY_BYTES", "BODIES_OF_ORGANISATION_BYTES", "BODIES_OF_PROCESS_BYTES"])
async def test_messages_count_among_the_bodies(
    api: Api, monkeypatch: pytest.MonkeyPatch, bound: str, is_whole: bool
) -> None:
    monkeypatch.setattr(concurrency, bound, MIB)
    async with listening(api) as live:
        assert await live.is_well()
        live.socket.transport.write(frame(TEXT, bytes(MIB // (3 if is_whole else 2)), is_last=is_whole))
        if is_whole:
            assert has_error(await live.error(), "invalid_json")
            assert await live.is_well()
        live.socket.transport.write(frame(TEXT if is_whole else CONTINUATION, bytes(MIB), is_last=is_whole))
        assert await live.closed() == 1013
    await until(lambda: api.service.concurrency.body_bytes.total == 0)
    assert api.service.concurrency.refused


async def upgraded(api: Api, address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A plain socket that has asked for a session."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(address.rpartition(":")[2]))
    head = [f"GET {PATH} HTTP/1.1", "Host: x", f"Authorization: Bearer {api.everything}", *HANDSHAKE, "", ""]
    writer.write("\r\n".join(head).encode())
    return reader, writer


async def test_nothing_is_read_of_a_client_that_is_not_admitted(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    release, pings, rates = asyncio.Event(), [0], api.state.rates
    hit, handle_ping = rates.hit, sockets.BoundedSocket.handle_ping

    async def slow_hit(caller: Any) -> Any:
        await release.wait()
        return await hit(caller)

    def counted_ping(socket: Any) -> None:
        pings[0] += 1
        handle_ping(socket)

    monkeypatch.setattr(rates, "hit", slow_hit)
    monkeypatch.setattr(sockets.BoundedSocket, "handle_ping", counted_ping)
    async with at_port(app_over(api.service)) as address:
        reader, writer = await upgraded(api, address)
        await until(lambda: api.service.concurrency.requests == 1)
        writer.write(frame(PING) * 10)
        for _ in range(100):  # turns of the loop in which it could be read
            await asyncio.sleep(0)
        read_early = pings[0]
        release.set()
        assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
        await until(lambda: pings == [10])
        writer.transport.abort()
        await until(lambda: api.service.concurrency.requests == 0)
    assert read_early == 0


@pytest.mark.parametrize(
    "late",
    [1000 * frame(TEXT), frame(TEXT, bytes(MIB), is_last=False), frame(TEXT, bytes(MIB))[:-1], 1000 * frame(PING)],
    ids=["messages", "a message without its end", "half a frame", "pings"],
)
async def test_nothing_is_kept_of_a_client_that_continues_after_the_close(
    api: Api, monkeypatch: pytest.MonkeyPatch, late: bytes
) -> None:
    monkeypatch.setattr(sockets, "LINGER_S", 0.0)
    dropped: list[int] = []
    stop = sockets.BoundedSocket._stop_reading

    def stopped(socket: Any) -> None:
        stop(socket)
        dropped.append(len(socket.conn.reader.buffer) + len(socket.frames))

    monkeypatch.setattr(sockets.BoundedSocket, "_stop_reading", stopped)
    async with at_port(app_over(api.service)) as address:
        async with asyncio.timeout(WAIT_S / 2):  # uvicorn waits for 10 s
            reader, writer = await upgraded(api, address)
            await reader.readuntil(b"\r\n\r\n")
            writer.write(event("parlance.session.end"))
            await reader.readuntil(b"\x88")
            await until(lambda: len(api.service.live) == 0)
            writer.write(late)
            with suppress(ConnectionError):
                while await reader.read(MIB):
                    pass
        writer.transport.abort()
    assert dropped == [0]


async def test_a_client_that_sends_sound_at_the_close_reads_its_last_ledger(api: Api) -> None:
    async with listening(api) as live:

        async def stream() -> None:
            with suppress(ConnectionClosed):
                while True:
                    await live.pause(0.02)

        streaming = asyncio.create_task(stream())
        await live.send("parlance.session.end")
        async with asyncio.timeout(WAIT_S):
            seen = [json.loads(text) async for text in live.socket]
            await streaming
    assert seen[-1]["is_last"]
    assert live.socket.close_code == 1000
