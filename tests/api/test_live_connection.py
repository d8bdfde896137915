"""Frames, reads and bodies of the connections of live sessions, whatever their clients send."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from autoscaling.ray_internals import sockets
from benchmarks.attacks.frames import CONTINUATION, HANDSHAKE, PING, PONG, TEXT, event, frame
from contract.limits import MIB
from deployments.ingress.front import concurrency
from tests.api.conftest import Api, app_over
from tests.api.live import PATH, WAIT_S, has_error, listening, scripted_speech
from tests.api.ports import at_port
from tests.waiting import until

__all__ = ["scripted_speech"]

HAPROXY = Path(__file__).parents[2] / "deployments/haproxy"
HALF_A_FRAME = frame(TEXT, b"{}")[:-1]


async def test_a_message_that_no_server_reads_ends_the_connection(api: Api) -> None:
    async with listening(api) as live:
        with suppress(ConnectionClosed):
            await live.socket.send("A" * 17 * MIB)
        assert await live.closed() == 1009


@pytest.mark.parametrize("count", [99, 100, 101])
@pytest.mark.parametrize("kind", [PING, PONG, CONTINUATION])
async def test_frames_that_are_no_messages_have_an_allowance(
    api: Api, monkeypatch: pytest.MonkeyPatch, kind: int, count: int
) -> None:
    is_piece = kind == CONTINUATION
    monkeypatch.setattr(sockets, "CONTINUATION_FRAMES" if is_piece else "CONTROL_FRAMES", (1e-6, 100))
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
    (ends_s,) = re.findall(r"\\n    timeout tunnel (\d+)s' ", HAPROXY.read_text())
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
