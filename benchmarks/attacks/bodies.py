"""JSON that costs more to read than to send, and bodies that never end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress

import httpx

from benchmarks.attacks.attack import Saw, answered, attack, each_answered
from benchmarks.attacks.bystander import standing_by
from benchmarks.attacks.connections import HELD_BYTES
from benchmarks.attacks.target import Target, counted
from benchmarks.attacks.wire import connected, first_status, read_reply, request, statuses
from contract.limits import JSON_BODY_BYTES, JSON_DEPTH, JSON_VALUES, MIB

AT_ONCE, PIECE_BYTES = 16, 1 << 16
PARTS = 250
"""Of a message that is all wrong: as many as it may have, or a few less."""

PATHS = ("/v1/chat/completions", "/v1/embeddings", "/v1/decisions")

SHAPES = {
    "deep": b"[" * 5_000 + b"]" * 5_000,
    "one level too deep": b'{"a":' * JSON_DEPTH + b"[]" + b"}" * JSON_DEPTH,
    "one value too many": b"[" + b"0," * JSON_VALUES + b"0]",
    "not a number": b'{"input": NaN}',
    "infinity": b'{"input": [Infinity]}',
    "a number that becomes infinity": b'{"input": "a", "tools": [{"parameters": {"a": 1e999}}]}',
    "5,000 digits": b'{"input": ' + b"9" * 5_000 + b"}",
    "half a character": b'{"input": "\\ud800"}',
    "no UTF-8": b'{"input": "\xff\xfe"}',
    "a key twice": b'{"input": "a", "input": "b"}',
    "nothing": b"",
}


@attack("400, and nobody else waits")
async def duplicate_keys(target: Target) -> Saw:
    """As many keys as a body can have, the last one twice: comparing each with all others takes seconds."""
    count = JSON_VALUES // 2 - 1
    body = b"{" + b"".join(b'"k%d":0,' % index for index in range(count)) + b'"k%d":0}' % (count - 1)
    with standing_by(target) as waits:
        replies = [await target.send("POST", path, content=body) for path in PATHS]
    return answered(replies, {400, 413}, waits)


@attack("400 or 413, and nobody else waits")
async def json_floods(target: Target) -> Saw:
    """As many empty arrays as a body can have, from six clients at once."""
    body = b"[" + b"[]," * ((JSON_BODY_BYTES - 10) // 3) + b"[]]"
    with standing_by(target) as waits:
        tries = (target.send("POST", path, content=body) for path in PATHS * target.size(1, 2))
        replies = await asyncio.gather(*tries)
    return answered(replies, {400, 413, 429}, waits)


@attack("400, and nobody else waits for 0.3 s")
async def wrong_values(target: Target) -> Saw:
    """Sixteen bodies at once in which every value is wrong: an error for each of them is half a second of work."""
    few, many = JSON_VALUES - 100, 5 * JSON_VALUES - 5_000
    replies: list[httpx.Response] = []
    with standing_by(target) as waits:
        for path, body in [*_wrong(few), *_wrong(many)]:
            tries = (target.send("POST", path, content=body) for _ in range(AT_ONCE))
            replies += await asyncio.gather(*tries)
    saw = answered(replies, {400, 413, 429}, waits)
    return Saw(saw.text, saw.passed and waits.is_hardly_noticed(target))


def _wrong(values: int) -> Iterator[tuple[str, bytes]]:
    """Bodies of so many values, and the paths that read them."""
    turns = [{"role": "user", "content": [0] * PARTS}] * (values // (PARTS + 6))
    chat = {"model": "x", "max_tokens": 5, "messages": turns}
    for path, body in (
        ("/v1/messages", chat),
        ("/v1/chat/completions", chat),
        ("/v1/responses", {"model": "x", "input": turns}),
        ("/v1/decisions", {"messages": [0] * (values - 2)}),
        ("/v1/decisions", dict.fromkeys(map(str, range(values // 2)), 0)),
    ):
        yield path, json.dumps(body).encode()


@attack("400 for each")
async def json_shapes(target: Target) -> Saw:
    """Nesting, numbers, characters and keys that readers of JSON treat differently."""
    replies = {
        f"{name} to {path}": await target.send("POST", path, content=body)
        for path in PATHS[: target.size(1, 3)]
        for name, body in SHAPES.items()
    }
    return each_answered(replies, {400})


@attack("413, before the body is read or as soon as it is too long")
async def endless_bodies(target: Target) -> Saw:
    """Bodies that say they are 1 GiB long, and bodies that say nothing and go on."""
    lines = request(target, "POST", PATHS[0], f"Content-Length: {1 << 30}", key=target.key)
    async with connected(target) as (reader, writer):
        writer.write(lines)
        declared = statuses(await read_reply(reader, 5))

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(1_024):
            yield b" " * 65_536

    # A server that refuses may close before it has read everything, and the client then hears of that only.
    try:
        reply = await target.send("POST", PATHS[1], content=endless())
        undeclared = str(reply.status_code)
    except httpx.HTTPError:
        undeclared = "cut off"
    passed = declared[:1] == [413] and undeclared in {"413", "cut off"}
    return Saw(f"declared: {declared}; undeclared: {undeclared}", passed)


@attack("429 or 503 beyond what one key may hold, and nobody else waits")
async def held_bodies(target: Target) -> Saw:
    """Large bodies whose last byte never comes: together 320 MiB."""
    length = JSON_BODY_BYTES - 1
    count = HELD_BYTES // length
    head = request(target, "POST", PATHS[1], f"Content-Length: {length}", key=target.key)

    all_sent = asyncio.Barrier(count)

    async def hold() -> int | None:
        async with connected(target) as (reader, writer):
            listening = asyncio.create_task(first_status(reader))
            with suppress(ConnectionError):
                writer.write(head)
                for sent in range(0, length - 1, PIECE_BYTES):  # the buffer of the connection stays small
                    writer.write(bytes(min(PIECE_BYTES, length - 1 - sent)))
                    await writer.drain()
            await all_sent.wait()
            await asyncio.wait({listening}, timeout=5)
            return listening.result() if listening.done() else None

    with standing_by(target) as waits:
        ends = await asyncio.gather(*(hold() for _ in range(count)))
    open_count = ends.count(None)
    refused = counted(str(end or "closed") for end in ends if end is not None)
    text = (
        f"{open_count} of {count} stayed open ({open_count * length // MIB} MiB), refused: {refused or 'none'}; {waits}"
    )
    return Saw(text, waits.passed and open_count < count and set(ends) <= {None, 0, 429, 503})
