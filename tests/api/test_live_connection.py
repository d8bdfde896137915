"""Frames, reads, bodies and places of the connections of live sessions, whatever their clients send."""

from __future__ import annotations

import asyncio
import base64
import json
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from audio.listener import RATE
from autoscaling.ray_internals import sockets
from benchmarks.attacks.frames import CONTINUATION, HANDSHAKE, PING, PONG, TEXT, event, frame
from contract.access import Scope
from contract.limits import MIB
from deployments.ingress.front import concurrency
from deployments.ingress.front import live as live_sessions
from tests.api.conftest import Api, app_over
from tests.api.live import PATH, SECOND, WAIT_S, Live, has_error, listening, opened
from tests.api.ports import at_port
from tests.waiting import until


async def test_a_message_that_no_server_reads_ends_the_connection(ears: Api) -> None:
    async with listening(ears) as live:
        with suppress(ConnectionClosed):
            await live.socket.send("A" * 17 * MIB)
        await live.socket.wait_closed()
        assert live.socket.close_code == 1009


async def closed(live: Live) -> int | None:
    """The code with which the server closes."""
    async with asyncio.timeout(WAIT_S):
        await live.socket.wait_closed()
    return live.socket.close_code


FRAMES = {"CONTROL_FRAMES": (PING, PONG), "CONTINUATION_FRAMES": (CONTINUATION,)}
"""Allowances, and the kinds of frames that use each."""


@pytest.mark.parametrize("count", [99, 100, 101])
@pytest.mark.parametrize(("allowance", "kind"), [(name, kind) for name, kinds in FRAMES.items() for kind in kinds])
async def test_frames_that_are_no_messages_have_an_allowance(
    ears: Api, monkeypatch: pytest.MonkeyPatch, allowance: str, kind: int, count: int
) -> None:
    monkeypatch.setattr(sockets, allowance, (1e-6, 100))
    async with listening(ears, ping_interval=None) as live:
        pieces = frame(TEXT, is_last=False) + (count - 1) * frame(CONTINUATION, is_last=False) + frame(CONTINUATION)
        live.socket.transport.write(pieces if kind == CONTINUATION else count * frame(kind) + frame(TEXT))
        if count > 100:
            assert await closed(live) == 1008
        else:
            assert has_error(await live.error(), "invalid_json")
            assert await live.is_well()


async def test_messages_in_one_read_are_answered_in_turn(ears: Api) -> None:
    async with listening(ears) as live:
        live.socket.transport.write(50 * frame(TEXT) + frame(TEXT, b'{"type": "parlance.session.ledger"}'))
        for _ in range(50):
            assert has_error(await live.error(), "invalid_json")
        await live.next("parlance.session.ledger")
        assert await live.is_well()


async def test_a_message_that_has_begun_is_whole_in_time(ears: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "BODY_IDLE_S", 0.1)
    async with listening(ears) as live:
        assert await live.is_well()
        live.socket.transport.write(frame(TEXT, b"{", is_last=False))
        assert await closed(live) == 1008
        assert "not whole within" in live.socket.close_reason


async def test_half_a_frame_is_a_message_that_has_begun(ears: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "BODY_IDLE_S", 0.1)
    async with listening(ears) as live:
        live.socket.transport.write(frame(TEXT, b"{}")[:-1])
        assert await closed(live) == 1008


@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.parametrize("bound", ["BODIES_OF_KEY_BYTES", "BODIES_OF_ORGANISATION_BYTES", "BODIES_OF_PROCESS_BYTES"])
async def test_messages_count_among_the_bodies(
    ears: Api, monkeypatch: pytest.MonkeyPatch, bound: str, is_whole: bool
) -> None:
    monkeypatch.setattr(concurrency, bound, MIB)
    async with listening(ears) as live:
        assert await live.is_well()
        live.socket.transport.write(frame(TEXT, bytes(MIB // (3 if is_whole else 2)), is_last=is_whole))
        if is_whole:
            assert has_error(await live.error(), "invalid_json")
            assert await live.is_well()
        live.socket.transport.write(frame(TEXT if is_whole else CONTINUATION, bytes(MIB), is_last=is_whole))
        assert await closed(live) == 1013
    await until(lambda: ears.service.concurrency.body_bytes.total == 0)
    assert ears.service.concurrency.refused


async def upgraded(ears: Api, address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A plain socket that has asked for a session."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(address.rpartition(":")[2]))
    head = [f"GET {PATH} HTTP/1.1", "Host: x", f"Authorization: Bearer {ears.everything}", *HANDSHAKE, "", ""]
    writer.write("\r\n".join(head).encode())
    return reader, writer


async def test_nothing_is_read_of_a_client_that_is_not_admitted(ears: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    release, pings, rates = asyncio.Event(), [0], ears.state.rates
    hit, handle_ping = rates.hit, sockets.BoundedSocket.handle_ping

    async def slow_hit(caller: Any) -> Any:
        await release.wait()
        return await hit(caller)

    def counted_ping(socket: Any) -> None:
        pings[0] += 1
        handle_ping(socket)

    monkeypatch.setattr(rates, "hit", slow_hit)
    monkeypatch.setattr(sockets.BoundedSocket, "handle_ping", counted_ping)
    async with at_port(app_over(ears.service)) as address:
        reader, writer = await upgraded(ears, address)
        await until(lambda: ears.service.concurrency.requests == 1)
        writer.write(frame(PING) * 10)
        for _ in range(100):  # turns of the loop in which it could be read
            await asyncio.sleep(0)
        read_early = pings[0]
        release.set()
        assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
        await until(lambda: pings == [10])
        writer.transport.abort()
        await until(lambda: ears.service.concurrency.requests == 0)
    assert read_early == 0


@pytest.mark.parametrize(
    "late",
    [1000 * frame(TEXT), frame(TEXT, bytes(MIB), is_last=False), frame(TEXT, bytes(MIB))[:-1], 1000 * frame(PING)],
    ids=["messages", "a message without its end", "half a frame", "pings"],
)
async def test_nothing_is_kept_of_a_client_that_continues_after_the_close(
    ears: Api, monkeypatch: pytest.MonkeyPatch, late: bytes
) -> None:
    monkeypatch.setattr(sockets, "LINGER_S", 0.0)
    dropped: list[int] = []
    stop = sockets.BoundedSocket._stop_reading

    def stopped(socket: Any) -> None:
        stop(socket)
        dropped.append(len(socket.conn.reader.buffer) + len(socket.frames))

    monkeypatch.setattr(sockets.BoundedSocket, "_stop_reading", stopped)
    async with at_port(app_over(ears.service)) as address:
        async with asyncio.timeout(WAIT_S / 2):  # uvicorn waits for 10 s
            reader, writer = await upgraded(ears, address)
            await reader.readuntil(b"\r\n\r\n")
            writer.write(event("parlance.session.end"))
            await reader.readuntil(b"\x88")
            await until(lambda: len(ears.service.live) == 0)
            writer.write(late)
            with suppress(ConnectionError):
                while await reader.read(MIB):
                    pass
        writer.transport.abort()
    assert dropped == [0]


async def test_a_client_that_sends_sound_at_the_close_reads_its_last_ledger(ears: Api) -> None:
    async with listening(ears) as live:

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


async def test_who_may_not_open_a_session_is_answered_with_an_error(ears: Api) -> None:
    narrow, foreign = await ears.key(Scope.CHAT), {"origin": "https://evil.example"}
    assert await refused(ears) == (401, "missing_api_key")
    assert await refused(ears, **bearer("prl_wrong")) == (401, "invalid_api_key")
    assert await refused(ears, **bearer(narrow)) == (403, "missing_scope")
    assert await refused(ears, **bearer(ears.everything), **foreign) == (403, "foreign_origin")
    speaks = await refused(ears, "/v1/realtime?intent=conversation", **bearer(ears.everything))
    assert speaks == (400, "invalid_request_error")
    assert await refused(ears, "/v1/models", **bearer(ears.everything)) == (404, "not_found")
    await ears.limit(0)
    assert await refused(ears, **bearer(await ears.key(*Scope))) == (402, "org_spend_limit")


async def test_a_client_secret_that_was_changed(ears: Api) -> None:
    secret = (
        await ears.send("POST", "/v1/realtime/client_secrets", json={"session": {"type": "transcription"}})
    ).json()["value"]
    payload, kid, signature = secret.removeprefix("ek_").split(".")
    forged = base64.urlsafe_b64encode(b'["x",99999999999,"{}"]').decode().rstrip("=")
    for wrong in (f"ek_{forged}.{kid}.{signature}", f"ek_{payload}.{kid}.AAAA", "ek_", "ek_a.b", "ek_ä.b.c"):
        assert await refused(ears, **bearer(wrong.encode().decode("latin-1"))) == (401, "invalid_api_key")


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
        assert has_error(error, "rate_limit_exceeded", says="your organisation")
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
