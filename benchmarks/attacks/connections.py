"""Connections that cost the client nothing: requests that never become whole, replies that nobody reads."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import suppress

from benchmarks.attacks.attack import Saw, attack
from benchmarks.attacks.bystander import standing_by
from benchmarks.attacks.frames import ending
from benchmarks.attacks.target import Target, counted
from benchmarks.attacks.wire import connected, first_status, request, statuses
from contract.embeddings import MAX_FLOATS, MAX_INPUTS
from contract.limits import MIB

HEADERS_S = 20
"""In which half a request must be given up."""

STOPPED_S = 45
"""In which a body of which nothing comes must be given up."""

TRICKLING_S = 60
"""The same of a body that comes by a byte a second."""

PIPELINED = 4
"""Requests on such a connection: one reply alone might fit into the buffers of sockets on the way."""

UNREAD_S = 90
"""In which a reply that nobody reads must be given up."""

HELD_BYTES = 320 * MIB
"""More than one key may have in the memory of two processes."""


@attack("each is closed within 20 s, and nobody else waits")
async def half_sent_requests(target: Target) -> Saw:
    """Connections that send half of their headers, and no more."""
    count = target.size(60, 300)
    half = request(target, "POST", "/v1/chat/completions", "X-Long: x", key=target.key)[:-4]

    async def wait() -> bool:
        async with connected(target) as (reader, writer):
            writer.write(half)
            return await ending(reader, HEADERS_S) != "open"

    with standing_by(target) as waits:
        closed = await asyncio.gather(*(wait() for _ in range(count)))
    return Saw(
        f"{closed.count(False)} of {count} still open after {HEADERS_S} s; {waits}", all(closed) and waits.passed
    )


@attack("408 or closed after some 20 s without a byte, and nobody else waits")
async def bodies_that_stop(target: Target) -> Saw:
    """Bodies of 1 MiB of which one byte comes."""
    return await _slow(target, target.size(10, 40), STOPPED_S, every_s=None)


@attack("408 or closed after some 30 s, and nobody else waits", is_long=True)
async def bodies_that_trickle(target: Target) -> Saw:
    """Bodies of 1 MiB that come byte by byte, one in a second."""
    return await _slow(target, 40, TRICKLING_S, every_s=1.0)


@attack("dropped within some 60 s", "embedding", is_long=True)
async def clients_that_read_nothing(target: Target) -> Saw:
    """Replies of many MB that are asked for one after the other on a connection, and never read."""
    body = json.dumps(
        {"model": target.models["embedding"][0], "input": ["word"] * 2_048, "encoding_format": "base64"}
    ).encode()
    message = request(target, "POST", "/v1/embeddings", f"Content-Length: {len(body)}", key=target.key, body=body)

    async def ignore() -> bool:
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            connection.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(connection, target.address)
            await loop.sock_sendall(connection, message * PIPELINED)
            await asyncio.sleep(UNREAD_S)
            return await _replies(connection) < PIPELINED

    with standing_by(target) as waits:
        dropped = await asyncio.gather(*(ignore() for _ in range(4)))
    return Saw(f"{dropped.count(False)} of 4 were not dropped; {waits}", all(dropped) and waits.passed)


@attack("429 or 503 beyond what one key may hold, and nobody else waits", "embedding")
async def unread_replies(target: Target) -> Saw:
    """The longest replies that there are, together 320 MiB, which are asked for at one time and never read."""
    question = {"model": target.models["embedding"][0], "input": ["a"], "encoding_format": "float"}
    first = await target.send("POST", "/v1/embeddings", json=question)
    texts = min(MAX_INPUTS, MAX_FLOATS // len(first.json()["data"][0]["embedding"]))
    body = json.dumps(question | {"input": ["a"] * texts}).encode()
    message = request(target, "POST", "/v1/embeddings", f"Content-Length: {len(body)}", key=target.key, body=body)
    count = HELD_BYTES // (len(first.content) * texts)
    all_answered = asyncio.Barrier(count)

    async def ignore() -> int:
        async with connected(target) as (reader, writer):
            writer.write(message)
            status = await first_status(reader)
            await all_answered.wait()
            return status

    with standing_by(target) as waits:
        ends = await asyncio.gather(*(ignore() for _ in range(count)))
    passed = waits.passed and set(ends) <= {200, 429, 503} and set(ends) != {200}
    return Saw(f"{counted(map(str, ends))}; {waits}", passed)


async def _slow(target: Target, count: int, within_s: float, every_s: float | None) -> Saw:
    """`count` bodies of which a byte comes every `every_s`, or none after the first."""
    message = request(target, "POST", "/v1/embeddings", "Content-Length: 1048576", key=target.key, body=b"{")

    async def trickle(writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while every_s is not None:
                await asyncio.sleep(every_s)
                writer.write(b" ")
                await writer.drain()

    async def wait() -> str:
        async with connected(target) as (reader, writer):
            writer.write(message)
            trickling = asyncio.create_task(trickle(writer))
            try:
                async with asyncio.timeout(within_s):
                    return str(await first_status(reader) or "closed")
            except TimeoutError:
                return "still open"
            finally:
                trickling.cancel()

    with standing_by(target) as waits:
        ends = await asyncio.gather(*(wait() for _ in range(count)))
    passed = waits.passed and set(ends) <= {"408", "429", "503", "closed"}
    return Saw(f"{counted(ends)} within {within_s:.0f} s; {waits}", passed)


async def _replies(connection: socket.socket) -> int:
    """How many replies begin in what comes now, all at once."""
    read = bytearray()
    loop = asyncio.get_running_loop()
    with suppress(TimeoutError, ConnectionError):
        async with asyncio.timeout(10):
            while len(statuses(read)) < PIPELINED and (piece := await loop.sock_recv(connection, 1 << 16)):
                read += piece
    return len(statuses(read))
