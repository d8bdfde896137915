"""Exact bytes over a socket. HTTP libraries refuse or tidy up what attackers send."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from benchmarks.attacks.target import Target

_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3}) ")
MOST_BYTES = 1 << 20
"""Of replies that are read."""


@asynccontextmanager
async def connected(target: Target) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """One connection, which is cut off at the end of the block."""
    reader, writer = await asyncio.open_connection(*target.address)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


def request(target: Target, method: str, path: str, *headers: str, key: str = "", body: bytes = b"") -> bytes:
    """A request as it goes over the wire. No header is added but Host and the key."""
    host, port = target.address
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}:{port}", *headers]
    if key:
        lines.append(f"Authorization: Bearer {key}")
    return "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape") + body


async def exchange(target: Target, data: bytes, wait_s: float = 5.0) -> bytes:
    """What comes back for `data` until the server closes, or has been silent for `wait_s`."""
    async with connected(target) as (reader, writer):
        with suppress(ConnectionError):
            writer.write(data)
            await writer.drain()
        return await read_reply(reader, wait_s)


async def read_reply(reader: asyncio.StreamReader, wait_s: float) -> bytes:
    """Everything until the end, or until nothing comes for `wait_s`."""
    read = bytearray()
    with suppress(TimeoutError, ConnectionError):
        while len(read) < MOST_BYTES:
            async with asyncio.timeout(wait_s):
                piece = await reader.read(65_536)
            if not piece:
                break
            read += piece
    return bytes(read)


async def first_status(reader: asyncio.StreamReader) -> int:
    """Of the first reply, as soon as it begins; 0 where the connection ends without one. It may stay open after it."""
    with suppress(ConnectionError):
        return next(iter(statuses(await reader.readline())), 0)
    return 0


def statuses(reply: bytes | bytearray) -> list[int]:
    """Of each reply in what came over one connection."""
    return [int(status) for status in _STATUS.findall(reply)]
