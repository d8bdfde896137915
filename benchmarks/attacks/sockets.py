"""Live sessions that cost the client nothing: sockets that are torn off, flooded, or not read."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory

from benchmarks.attacks.attack import Saw, attack
from benchmarks.attacks.bystander import standing_by
from benchmarks.attacks.target import Target, authorized, counted
from contract.limits import MIB

PATH = "/v1/realtime?intent=transcription"
SECOND = base64.b64encode(bytes(48_000)).decode()
APPEND = json.dumps({"type": "input_audio_buffer.append", "audio": SECOND})
ANSWER_S = 20
UNREAD_BYTES, KEPT_BYTES = 64 * MIB, 96 * MIB
"""Of events that each cause an error of six times their size, and what sockets on the way may hold of these."""
STALLED_S = 2
BOMB_BYTES = 256 * MIB


@asynccontextmanager
async def session(target: Target, *, key: str | None = None, **options: Any) -> AsyncIterator[ClientConnection]:
    """A live session that has told that it is there. Raises InvalidStatus."""
    headers = authorized(target.key if key is None else key)
    url = target.url.replace("http", "ws", 1) + PATH
    settings = {"compression": None, "max_size": None, "ping_interval": None, "close_timeout": 1} | options
    async with connect(url, additional_headers=headers, **settings) as socket:
        created = json.loads(await _event(socket))
        if created["type"] != "session.created":
            raise OSError(f"the session began with {created['type']}")
        yield socket


async def _event(socket: ClientConnection) -> Any:
    async with asyncio.timeout(ANSWER_S):
        return await socket.recv()


async def _error(socket: ClientConnection, message: str | bytes) -> str:
    """The code of the error that a message causes, or of the close."""
    try:
        await socket.send(message)
        while True:
            event = json.loads(await _event(socket))
            if event["type"] == "error":
                return str(event["error"]["code"])
    except ConnectionClosed as closed:
        return f"close {closed.rcvd.code if closed.rcvd else 'without a word'}"


async def _opened(target: Target, count: int) -> tuple[int, int]:
    """How many of `count` sessions open at one time, and the status of the first that does not."""
    async with AsyncExitStack() as stack:
        for number in range(count):
            try:
                await stack.enter_async_context(session(target))
            except InvalidStatus as refused:
                return number, refused.response.status_code
    return count, 0


@attack("as many sessions open afterwards as before, one more is 429, and nobody else waits")
async def rude_closes(target: Target) -> Saw:
    """Sessions that are torn off in the middle of a sentence, without a close."""
    count = target.size(60, 500)
    limit = int((await target.send("GET", "/v1/me")).json()["limits"]["concurrent_streams"])
    before = await _opened(target, limit + 1)

    async def tear() -> None:
        async with session(target) as socket:
            await socket.send(APPEND)
            socket.transport.abort()

    with standing_by(target) as waits:
        for _ in range(0, count, limit):
            await asyncio.gather(*(tear() for _ in range(limit)), return_exceptions=True)
    after = await _settled(target, limit + 1, before)
    said = f"{before[0]} before, {after[0]} after {count}, then {after[1]}; {waits}"
    return Saw(said, before == after == (limit, 429) and waits.passed)


async def _settled(target: Target, count: int, wanted: tuple[int, int]) -> tuple[int, int]:
    """What opens once the server has noticed that the others have gone, at most ANSWER_S later."""
    seen = (0, 0)
    with suppress(TimeoutError):
        async with asyncio.timeout(ANSWER_S):
            while (seen := await _opened(target, count)) != wanted:  # noqa: ASYNC110  # another process notices
                await asyncio.sleep(0.5)
    return seen


@attack("what was kept for it is 96 MiB at most, of 380; nobody else waits")
async def sessions_that_read_nothing(target: Target) -> Saw:
    """Events that each cause an error, 64 MiB of them, on a socket that reads no reply before the last."""
    message = '{"type": "' + "x" * 60 + '"}'
    sent = kept = 0
    with standing_by(target) as waits, suppress(ConnectionClosed, TimeoutError):
        async with session(target, max_queue=1) as socket:
            with suppress(ConnectionClosed, TimeoutError):
                while sent < UNREAD_BYTES:
                    async with asyncio.timeout(STALLED_S):
                        for _ in range(100):
                            await socket.send(message)
                    sent += 100 * len(message)
                    await asyncio.sleep(0.001)  # the bystander has his turn
            while True:
                async with asyncio.timeout(STALLED_S):
                    kept += len(await socket.recv())
    said = f"{sent / MIB:.1f} MiB were taken, {kept / MIB:.1f} MiB kept"
    return Saw(f"{said}; {waits}", kept < KEPT_BYTES and waits.passed)


@attack("an error or a close for each, and nobody else waits")
async def monstrous_frames(target: Target) -> Saw:
    """Texts of 10 and 20 MB that are no JSON or no event, binary frames, broken UTF-8, 0 bytes."""
    messages: Sequence[str | bytes] = (
        "[" * (10 * MIB),
        json.dumps({"type": "input_audio_buffer.append", "audio": "*" * (10 * MIB)}),
        "x" * (20 * MIB),
        bytes(1 * MIB),
        b"",
        "",
    )
    with standing_by(target) as waits:
        ends = []
        for message in messages:
            async with session(target) as socket:
                ends.append(await _error(socket, message))
    return Saw(f"{counted(ends)}; {waits}", "close without a word" not in ends and waits.passed)


@attack("compression is not agreed upon, or the message is refused")
async def compressed_bombs(target: Target) -> Saw:
    """A message of 256 MiB that is a quarter of a megabyte on the wire."""
    offer = [ClientPerMessageDeflateFactory()]
    with standing_by(target) as waits:
        async with session(target, extensions=offer) as socket:
            if not socket.protocol.extensions:
                return Saw(f"not agreed upon; {waits}", passed=True)
            end = await _error(socket, "x" * BOMB_BYTES)
    return Saw(f"{end}; {waits}", waits.passed and end == "close 1009")


@attack("401, 401, 403, and no session")
async def sockets_of_strangers(target: Target) -> Saw:
    """Handshakes without a key, with a wrong one, and from a page that nobody has named."""
    foreign = {"origin": "https://evil.example"}
    statuses = [await _status(target, ""), await _status(target, "pk_wrong"), await _status(target, **foreign)]
    return Saw(counted(map(str, statuses)), statuses == [401, 401, 403])


async def _status(target: Target, key: str | None = None, **options: Any) -> int:
    try:
        async with session(target, key=key, **options):
            return 101
    except InvalidStatus as refused:
        return refused.response.status_code
