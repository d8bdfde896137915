"""Recordings that mean harm, and tickets for uploads that are forged, stolen or used for something else."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import httpx

from benchmarks.attacks.attack import OTHER_KEY, NotTriedError, Saw, attack, each_answered
from benchmarks.attacks.bombs import BOMBS
from benchmarks.attacks.bystander import standing_by
from benchmarks.attacks.target import NOBODY, Target, counted, summary
from benchmarks.attacks.wire import connected, first_status, request
from contract.limits import MIB, OPEN_UPLOADS, RECORDING_BODY_BYTES, UPLOAD_BYTES
from contract.speech.engine import Clip
from deployments.ingress.verifier import wav

PATH = "/v1/audio/transcriptions"

ENDED_S = 20
"""Within which an upload ends that nobody wants any more; the server looks every few seconds."""


@attack("400, 413 or 200, each within its deadline; afterwards a good file is heard", "stt")
async def hostile_audio(target: Target) -> Saw:
    """Small files that lie about themselves: rates, channels, lengths, thousands of streams, hours of silence."""
    bombs = {name: make() for name, make in list(BOMBS.items())[:: target.size(3, 1)]}
    await _transcribe(target, "good.wav", _good())  # the engine is awake
    with standing_by(target) as waits:
        replies = {name: await _transcribe(target, name, data[:RECORDING_BODY_BYTES]) for name, data in bombs.items()}
    after = await _transcribe(target, "good.wav", _good())
    saw = each_answered(replies, {200, 400, 413, 429}, waits)
    return Saw(f"{saw.text}; then {after.status_code}", saw.passed and after.status_code == 200)


@attack("400 for each, within a second of work; nobody else waits")
async def hostile_forms(target: Target) -> Saw:
    """Forms of thousands of fields, of endless headers, without an end, with the file a hundred times."""
    mark = b"--x\r\n"
    field = mark + b'Content-Disposition: form-data; name="f"\r\n\r\nv\r\n'
    file = mark + b'Content-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n' + _good() + b"\r\n"
    forms = {
        "5,000 fields": field * 5_000 + file + b"--x--\r\n",
        "100 files": file * 100 + b"--x--\r\n",
        "no end": file,
        "a header of 1 MiB": mark + b"X-A: " + b"a" * (1 << 20) + b"\r\n\r\nv\r\n--x--\r\n",
        "a long preamble": b"\n" * (1 << 20) + file + b"--x--\r\n",
        "no file": field + b"--x--\r\n",
        "nothing": b"",
    }
    headers = {"content-type": "multipart/form-data; boundary=x"}
    with standing_by(target) as waits:
        replies = {name: await target.send("POST", PATH, content=form, headers=headers) for name, form in forms.items()}
    return each_answered(replies, {200, 400, 413}, waits)


@attack("400, 403, 404, 409, 413 or 415, and never 200", "stt")
async def misused_tickets(target: Target) -> Saw:
    """Addresses for uploads: forged, of another method or type, too long, twice, by somebody else."""
    good = _good()
    ticket = await _ticket(target, len(good))
    address = urlsplit(ticket["upload_url"])
    path = f"{address.path}?{address.query}"

    async def put(to: str, data: bytes = good, content_type: str = "audio/wav") -> httpx.Response:
        return await target.send("PUT", to, key=NOBODY, content=data, headers={"content-type": content_type})

    last = "0" if path[-1] != "0" else "1"
    tries = {
        "another signature": await put(path[:-1] + last),
        "another name": await put(path.replace(address.path, address.path + "0")),
        "a way out": await put(path.replace("/files/", "/files/../")),
        "without its query": await put(address.path),
        "read": await target.send("GET", path, key=NOBODY),
        "another type": await put(path, content_type="text/html"),
        "too long": await put(path, good + b"x"),
        "nothing": await put(path, b""),
        "a ticket of 101 MiB": await _order(target, UPLOAD_BYTES + 1),
        "a ticket of less than nothing": await _order(target, -1),
    }
    first = await put(path)
    tries["twice"] = await put(path)
    if target.other_key:
        form = {"upload_id": (None, ticket["upload_id"])}
        tries["by somebody else"] = await target.send("POST", PATH, key=target.other_key, files=form)
    saw = each_answered(tries, range(400, 500))
    return Saw(f"{saw.text}; the true upload: {first.status_code}", saw.passed and first.status_code == 200)


@attack("404 for the transcription, and within seconds for the upload; nobody else waits", "stt")
async def uploads_of_used_tickets(target: Target) -> Saw:
    """Uploads that go on after their ticket was used: each would hold a request and 100 MiB of disk for an hour."""
    with standing_by(target) as waits:
        ends = await asyncio.gather(*(_used_meanwhile(target) for _ in range(target.size(3, 20))))
    return Saw(f"{counted(map(str, ends))}; {waits}", waits.passed and set(ends) == {(404, 404)})


async def _used_meanwhile(target: Target) -> tuple[int, int]:
    """Statuses of a transcription whose bytes are on their way, and of their upload; 0 for one that goes on."""
    ticket = await _ticket(target, UPLOAD_BYTES)
    address = urlsplit(ticket["upload_url"])
    path, length = f"{address.path}?{address.query}", f"Content-Length: {UPLOAD_BYTES}"
    async with connected(target) as (reader, writer):
        writer.write(request(target, "PUT", path, "Content-Type: audio/wav", length, body=bytes(MIB)))
        await writer.drain()
        transcript = await target.send("POST", PATH, json={"upload_id": ticket["upload_id"]})
        listening = asyncio.create_task(first_status(reader))
        await asyncio.wait({listening}, timeout=ENDED_S)
        return transcript.status_code, listening.result() if listening.done() else 0


@attack(
    "100 open ones of an organisation at most, then 429, also where they are used at once; one for somebody else",
    OTHER_KEY,
    is_long=True,
)
async def tickets_without_end(target: Target) -> Saw:
    """More tickets than anybody uses, and tickets that are used before anything comes: each may fill 100 MiB."""
    replies = await asyncio.gather(*(_order(target, UPLOAD_BYTES) for _ in range(60)))
    for reply in replies:
        await target.send("POST", PATH, json={"upload_id": reply.json().get("upload_id", "")})
    replies += await asyncio.gather(*(_order(target, UPLOAD_BYTES) for _ in range(60)))
    theirs = await _order(target, 1_000, target.other_key)
    issued = sum(reply.status_code == 200 for reply in replies)
    passed = issued <= OPEN_UPLOADS and {reply.status_code for reply in replies} == {200, 429}
    return Saw(f"{summary(replies)}; somebody else: {summary([theirs])}", passed and theirs.status_code == 200)


async def _transcribe(target: Target, name: str, data: bytes) -> httpx.Response:
    return await target.send("POST", PATH, files={"file": (name, data)})


async def _order(target: Target, size_bytes: int, key: str | None = None) -> httpx.Response:
    body = {"mime": "audio/wav", "size": size_bytes}
    return await target.send("POST", "/v1/audio/uploads", key=key, json=body)


async def _ticket(target: Target, size_bytes: int) -> dict[str, str]:
    reply = await _order(target, size_bytes)
    if reply.status_code != 200:
        raise NotTriedError(f"no ticket: {summary([reply])}")
    ticket: dict[str, str] = reply.json()
    return ticket


def _good() -> bytes:
    """Half a second of silence, as WAV."""
    return wav(Clip(bytes(16_000), 16_000))
