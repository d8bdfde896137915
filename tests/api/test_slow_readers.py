"""Clients that stop reading, over a real socket: they are dropped, and their engine is free."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvicorn

from deployments.ingress.front import middleware
from tests.api.conftest import Api, app_over
from tests.engines import ObedientChat
from tests.waiting import until

BUFFER_BYTES = 4096
EVENTS = 3000
"""Of an answer that the buffers between server and client do not hold."""


@asynccontextmanager
async def served(api: Api) -> AsyncIterator[int]:
    """The app over a socket that takes little before it has to wait; gives its port."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
    listening.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app_over(api.service), lifespan="off", log_level="critical"))
    serving = asyncio.create_task(server.serve([listening]))
    try:
        await until(lambda: server.started)
        yield listening.getsockname()[1]
    finally:
        server.should_exit = server.force_exit = True
        await serving
        listening.close()


@asynccontextmanager
async def asked(api: Api, port: int, events: int) -> AsyncIterator[socket.socket]:
    """A connection on which a stream of so many events was asked for; nothing is read."""
    body = {"model": "obedient", "messages": [{"role": "user", "content": f"stream {events} 0"}], "stream": True}
    text = json.dumps(body).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {api.everything}\r\n"
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        client.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(client, ("127.0.0.1", port))
        await loop.sock_sendall(client, f"{head}Content-Length: {len(text)}\r\n\r\n".encode() + text)
        yield client


def under_way(api: Api) -> int:
    """Streams that the engine works on."""
    engine = api.engine()
    assert isinstance(engine.adapter, ObedientChat)
    return engine.adapter.under_way


async def test_client_that_reads_nothing_is_dropped_and_its_engine_is_free(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(middleware, "WRITE_S", 0.5)
    async with served(api) as port, asked(api, port, 10**6):
        await until(lambda: under_way(api))
        await until(lambda: not (under_way(api) or api.service.concurrency.requests))
    (line,) = await api.usage()
    assert 0 < line.quantity < 10**6, "what was produced is billed, and no more"


async def test_client_that_reads_slowly_is_not_dropped(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "WRITE_S", 1.0)
    read, loop = b"", asyncio.get_running_loop()
    async with served(api) as port, asked(api, port, 1500) as client:
        while b"[DONE]" not in read and (piece := await loop.sock_recv(client, 16384)):
            read += piece
            await asyncio.sleep(0.005)
    assert read.count(b"data: {") == 1500


async def read_at(client: socket.socket, bytes_per_s: int) -> None:
    """Reads so much in a second, until there is no more."""
    read, loop = 0, asyncio.get_running_loop()
    began = loop.time()
    while piece := await loop.sock_recv(client, 4096):
        read += len(piece)
        await asyncio.sleep(max(0.0, began + read / bytes_per_s - loop.time()))


@pytest.mark.parametrize(("least_bytes_per_s", "bytes_per_s"), [(16_000, 150_000), (4_000_000, 50_000)])
async def test_client_is_dropped_that_always_reads_in_time_but_too_little(
    api: Api, monkeypatch: pytest.MonkeyPatch, least_bytes_per_s: int, bytes_per_s: int
) -> None:
    """48 KiB leave the buffers at a time, at most a third of `WRITE_S` each: by that alone it would be kept."""
    monkeypatch.setattr(middleware, "WRITE_S", 3.0)
    monkeypatch.setattr(middleware, "WRITE_LEAST_BYTES_PER_S", least_bytes_per_s)
    async with served(api) as port, asked(api, port, EVENTS) as client:
        reading = asyncio.create_task(read_at(client, bytes_per_s))
        await until(lambda: under_way(api))
        await until(lambda: not (under_way(api) or api.service.concurrency.requests))
        reading.cancel()
    (line,) = await api.usage()
    assert (line.quantities["output_tokens"] < EVENTS) == (bytes_per_s < least_bytes_per_s)
