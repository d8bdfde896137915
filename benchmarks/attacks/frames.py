"""Live sessions over plain sockets, which send buffers that are ready: as fast as the network takes them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from benchmarks.attacks.attack import Saw, attack
from benchmarks.attacks.bystander import standing_by
from benchmarks.attacks.target import Target, counted
from benchmarks.attacks.wire import connected, request, statuses
from contract.limits import BODIES_OF_KEY_BYTES, BODY_IDLE_S, MIB
from contract.realtime.limits import REALTIME_MESSAGE_BYTES

HANDSHAKE = (
    "Upgrade: websocket",
    "Connection: Upgrade",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
)
PATH = "/v1/realtime?intent=transcription"
CONTINUATION, TEXT, CLOSE, PING, PONG = 0, 1, 8, 9, 10
SESSIONS = 10
FLOOD_S = (4, 30)
"""In the short form and in the full one."""
BUFFER_BYTES = MIB
PIECE_BYTES = MIB

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def frame(opcode: int, payload: bytes = b"", *, is_last: bool = True) -> bytes:
    """A frame of a client. Its mask is 0, so the payload goes as it is."""
    length = len(payload)
    extended_bytes = 0 if length < 126 else 2 if length < 1 << 16 else 8
    size = {0: length, 2: 126, 8: 127}[extended_bytes]
    extended = length.to_bytes(extended_bytes, "big") if extended_bytes else b""
    return bytes([is_last << 7 | opcode, 0x80 | size]) + extended + bytes(4) + payload


def event(type: str, **members: str) -> bytes:
    """A frame with an event."""
    return frame(TEXT, json.dumps({"type": type, **members}).encode())


def filled(one: bytes, first: bytes = b"") -> bytes:
    """A buffer of a frame again and again, behind another one."""
    return first + one * max(1, BUFFER_BYTES // len(one))


TINY = {
    "pings": filled(frame(PING)),
    "pongs": filled(frame(PONG)),
    "empty texts": filled(frame(TEXT)),
    "texts after the end": filled(frame(TEXT), event("parlance.session.end")),
    "empty pieces": filled(frame(CONTINUATION, is_last=False), frame(TEXT, is_last=False)),
}
LONG = {
    "refused by its length": event("input_audio_buffer.append", audio="A" * (REALTIME_MESSAGE_BYTES - 100)),
    "no event": frame(TEXT, b"[" + b" " * (REALTIME_MESSAGE_BYTES - 100) + b"]"),
}
USELESS = {
    "ledgers": filled(event("parlance.session.ledger")),
    "clears": filled(event("input_audio_buffer.clear")),
    "updates": filled(event("session.update")),
}


@asynccontextmanager
async def upgraded(target: Target, key: str = "") -> AsyncIterator[Connection]:
    """The connection of a session that has begun. Raises ConnectionRefusedError with the status where none does."""
    async with connected(target) as (reader, writer):
        writer.write(request(target, "GET", PATH, *HANDSHAKE, key=key or target.key))
        status = (statuses(await reader.readuntil(b"\r\n\r\n")) or [0])[0]
        if status != 101:
            raise ConnectionRefusedError(str(status))
        yield reader, writer


async def ending(reader: asyncio.StreamReader, wait_s: float | None = None) -> str:
    """The code with which the server closes, after whatever it sends before; `open` where it does not in that time."""
    tail = b""
    try:
        async with asyncio.timeout(wait_s):
            while data := await reader.read(MIB):
                tail = (tail + data)[-256:]
    except TimeoutError:
        return "open"
    except ConnectionError:
        pass
    closes = (at for at in range(len(tail) - 3) if tail[at] == 0x80 | CLOSE and tail[at + 1] == len(tail) - at - 2)
    return next((f"close {int.from_bytes(tail[at + 2 : at + 4], 'big')}" for at in closes), "cut off")


async def flood(target: Target, buffers: Sequence[bytes], seconds: float, key: str = "") -> list[str]:
    """Sends buffers in turn on one session, and on another one wherever it is closed. Returns the ends of all."""
    ends: list[str] = []
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        try:
            async with upgraded(target, key) as (reader, writer):
                closing = asyncio.create_task(ending(reader))
                sending = asyncio.create_task(_send(writer, buffers))
                await asyncio.wait([closing, sending], timeout=end_s - time.monotonic(), return_when="FIRST_COMPLETED")
                sending.cancel()
                await asyncio.wait([closing], timeout=max(2.0, end_s - time.monotonic()) if sending.done() else 0)
                ends.append(closing.result() if closing.done() else "open")
                closing.cancel()
        except (ConnectionError, asyncio.IncompleteReadError) as error:
            ends.append(str(error) if isinstance(error, ConnectionRefusedError) else "cut off")
            await asyncio.sleep(0.1)
    return ends


async def _send(writer: asyncio.StreamWriter, buffers: Sequence[bytes]) -> None:
    with suppress(ConnectionError):
        while True:
            for buffer in buffers:
                writer.write(buffer)
                await writer.drain()


async def _flooded(target: Target, floods: dict[str, bytes]) -> tuple[str, bool]:
    """How each flood of several sessions ended, and whether somebody else could work meanwhile."""
    seconds = target.size(*FLOOD_S) / len(floods)
    shown, passed = [], True
    for name, buffer in floods.items():
        with standing_by(target) as waits:
            ends = await asyncio.gather(*(flood(target, [buffer], seconds) for _ in range(SESSIONS)))
        shown.append(f"{name}: {counted(end for of_one in ends for end in of_one)}; {waits}")
        passed = passed and waits.passed and waits.is_hardly_noticed(target)
    return ". ".join(shown), passed


@attack("close 1008 for what is no event, or they are read slowly; nobody else waits")
async def tiny_frames(target: Target) -> Saw:
    """A megabyte of frames of six bytes at a time: pings, pongs, empty texts, and empty pieces of one message."""
    return Saw(*await _flooded(target, TINY))


@attack("they are read slowly, and nobody else waits")
async def long_events(target: Target) -> Saw:
    """Events of four megabytes that are refused, one right after the other."""
    return Saw(*await _flooded(target, LONG))


@attack("they are read slowly, and nobody else waits")
async def useless_events(target: Target) -> Saw:
    """Events that each cause one in reply, and cost nothing: ledgers, clears, broken updates."""
    return Saw(*await _flooded(target, USELESS))


@attack("close 1013 beyond what one key may hold, 1008 for the others in time; nobody else waits")
async def unfinished_messages(target: Target) -> Saw:
    """As many sessions as a key may have, each with most of a message and no end of it."""
    piece = bytes(PIECE_BYTES)
    pieces = [frame(TEXT, piece, is_last=False)] + [frame(CONTINUATION, piece, is_last=False)] * 3
    count = int((await target.send("GET", "/v1/me")).json()["limits"]["concurrent_streams"])
    wait_s = BODY_IDLE_S + 5

    async def hold() -> str:
        try:
            async with upgraded(target) as (reader, writer):
                writer.write(b"".join(pieces))
                return await ending(reader, wait_s)
        except ConnectionRefusedError as refused:
            return str(refused)

    with standing_by(target) as waits:
        ends = await asyncio.gather(*(hold() for _ in range(count)))
    too_many = count * sum(map(len, pieces)) > BODIES_OF_KEY_BYTES
    passed = waits.passed and "open" not in ends and ("close 1013" in ends or not too_many)
    return Saw(f"{counted(ends)}; {waits}", passed)


@attack("refused as any other body, and nobody else waits")
async def chunks_of_one_byte(target: Target) -> Saw:
    """Bodies of megabytes in chunks of one byte, several at a time."""
    head = request(
        target, "POST", "/v1/embeddings", "Content-Type: application/json", "Transfer-Encoding: chunked", key=target.key
    )
    body = b"1\r\n \r\n" * target.size(300_000, 1_000_000) + b"0\r\n\r\n"

    async def send() -> int:
        async with connected(target) as (reader, writer):
            with suppress(ConnectionError):
                writer.write(head + body)
                await writer.drain()
            return (statuses(await reader.readline()) or [0])[0]

    with standing_by(target) as waits:
        seen = await asyncio.gather(*(send() for _ in range(SESSIONS)))
    return Saw(f"{counted(map(str, seen))}; {waits}", set(seen) <= {400, 413, 429, 503} and waits.passed)
