"""POST /audio/uploads and PUT /files; orders of them: tests/state/test_tickets.py."""

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from contract.errors import STATE_UNAVAILABLE, ApiError
from contract.limits import MIB, SPARE_BYTES, UPLOAD_BYTES, UPLOAD_S, UPLOADS_OF_ORGANISATION
from deployments.ingress.flows.uploads import AT_ONCE
from deployments.ingress.front.bodies import with_stall_limit
from deployments.ingress.routes import files
from models.transcription import adapter
from state import State
from state.blobs.folder import UNFINISHED, FolderBlobs
from state.blobs.open import open_blobs
from state.rates import Rates
from state.tickets import Ticket, Tickets
from tests.api.conftest import Api, Lent, refused
from tests.api.transcriptions import recognizing
from tests.api.uploads import (
    PATH,
    SOUND,
    WEBM,
    Body,
    in_pieces,
    put,
    put_raw,
    state_of,
    stored,
    ticket_of,
    transcribe,
    under_way,
)
from tests.docs.pages import ROOT
from tests.state.books import pass_time
from tests.state.bucket import Bucket, run_bucket
from tests.waiting import settled, until


async def test_issuing_wakes_the_transcriber(api: Api) -> None:
    engines: Any = api.service.engines
    await ticket_of(api)
    assert engines["transcription-voxtral-mini-transcribe"].warmed == 1
    body = {"mime": "audio/webm", "size": 1}
    await api.send("POST", PATH, json=body | {"model": "whisper-large-v3"})
    await api.send("POST", PATH, json=body | {"model": "whisper-1"})
    assert engines["transcription-whisper-large-v3"].warmed == 1
    assert engines["transcription-voxtral-mini-transcribe"].warmed == 2


async def test_issued_a_ticket_says_where_and_as_what_and_costs_nothing(api: Api) -> None:
    await api.limit(1)
    ticket = await ticket_of(api)
    assert set(ticket) == {"upload_id", "upload_url", "token", "content_type", "max_bytes"}
    found = await api.state.tickets.find(ticket["upload_id"])
    assert found is not None
    address = f"http://test/files/uploads/{found.id}?expires={found.expires_at}&"
    assert ticket["upload_url"].startswith(address)
    assert ticket["upload_url"].endswith(ticket["token"])
    assert (len(ticket["token"]), ticket["content_type"], ticket["max_bytes"]) == (64, "audio/webm", 104_857_600)
    assert found.state == "issued"
    assert await api.usage() == []


async def test_415_mime_not_allowed(api: Api) -> None:
    # Also where the size is wrong as well, or nothing is set up: the type comes first.
    bare = api.without(*api.service.catalog.transcription)
    for mime in ("", "audio/x-wav", "video/webm", "audio/webm\0", "*/*"):
        for over, size in ((api, 1), (api, UPLOAD_BYTES + 1), (bare, 1)):
            reply = await over.send("POST", PATH, json={"mime": mime, "size": size})
            refused(reply, 415, "unsupported_media_type", "mime", "audio/flac")
    refused(await bare.send("POST", PATH, json={"mime": "audio/webm", "size": 1}), 503, "not_configured")


async def test_what_is_no_request_for_a_ticket(api: Api) -> None:
    """All sizes: tests/contract/test_transcription.py."""
    webm: dict[str, Any] = {"mime": "audio/webm"}
    too_large = await api.send("POST", PATH, json=webm | {"size": UPLOAD_BYTES + 1})
    refused(too_large, 413, "request_too_large", "size")
    for body, param in (
        (webm | {"size": 0}, "size"),
        (webm | {"size": "1"}, "size"),
        (webm, "size"),
        ({"size": 1}, "mime"),
    ):
        refused(await api.send("POST", PATH, json=body), 400, "invalid_request_error", param)


async def test_a_declared_length_is_refused_before_the_body_is_read(api: Api) -> None:
    ticket = await ticket_of(api)
    read = 0

    async def counted() -> AsyncIterator[bytes]:
        nonlocal read
        read += 1
        yield SOUND

    assert await put_raw(api, ticket, counted(), (b"content-length", b"%d" % (len(SOUND) + 1))) == 413
    assert read == 0


async def test_an_endless_body_ends_at_the_limit(api: Api, tmp_path: Path) -> None:
    taken = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal taken
        while True:
            taken += 1
            yield b"x" * 1000

    ticket = await ticket_of(api, 10_000)
    assert await put_raw(api, ticket, endless()) == 413
    assert taken <= 12
    assert stored(tmp_path) == []


async def test_415_another_content_type(api: Api, tmp_path: Path) -> None:
    ticket = await ticket_of(api)
    for kind in ("audio/ogg", "", "application/octet-stream", "audio/webmm", "multipart/form-data"):
        reply = await api.client.put(ticket["upload_url"], content=SOUND, headers={"content-type": kind})
        refused(reply, 415, "unsupported_media_type", says="content-type: audio/webm")
    refused(await put(api, ticket, **{"content-encoding": "gzip"}), 415, "unsupported_media_type")
    assert (await state_of(api, ticket), stored(tmp_path)) == ("issued", [])
    assert (await put(api, ticket, **{"content-type": "Audio/WebM;codecs=opus"})).status_code == 200


async def test_403_another_address(api: Api) -> None:
    """Every change of every character: tests/state/test_keys.py."""
    ticket, other = await ticket_of(api), await ticket_of(api)
    address, name = ticket["upload_url"], f"uploads/{ticket['upload_id']}"
    now_s = int(api.state.clock())
    expired = f"/files/{name}?{api.state.signatures.sign(name, now_s, 'PUT')}"
    playing = f"/files/{name}?{api.state.signatures.sign(name, now_s + 60, 'GET')}"
    for wrong in (
        address.partition("?")[0],
        address.replace(ticket["upload_id"], other["upload_id"]),
        address.replace("/uploads/", "/samples/"),
        address.replace(ticket["token"], other["token"]),
        f"{address}&x=1",
        address.replace("?", "/x?"),
        address.replace("/files/uploads", "/files/x/%2e%2e/uploads"),
        address.replace("/files/uploads", "/files//uploads"),
        expired,
        playing,
    ):
        refused(await api.client.put(wrong, content=SOUND, headers=WEBM), 403, "invalid_signature")
    assert [await state_of(api, each) for each in (ticket, other)] == ["issued", "issued"]
    refused(await api.client.put(expired, content=SOUND, headers=WEBM), 403, "invalid_signature", says="expired")


async def test_404_an_address_of_no_ticket(api: Api) -> None:
    ticket = await ticket_of(api)
    for name in (
        f"uploads/upl_{'a' * 26}",
        "voices/1/sample.mp3",
        f"voices/{ticket['upload_id']}",
        f"uploads/x/{ticket['upload_id']}",
    ):
        query = api.state.signatures.sign(name, int(time.time()) + 60, "PUT")
        refused(await api.client.put(f"/files/{name}?{query}", content=SOUND, headers=WEBM), 404, "not_found")


async def test_what_was_uploaded_cannot_be_downloaded(api: Api) -> None:
    ticket = await ticket_of(api)
    await put(api, ticket)
    found = await api.state.tickets.find(ticket["upload_id"])
    assert found is not None
    query = ticket["upload_url"].partition("?")[2]
    for name in (found.name, found.blob):
        refused(await api.client.get(f"/files/{name}?{query}"), 403, "invalid_signature")
    assert (await api.client.head(ticket["upload_url"])).status_code == 405


@pytest.mark.parametrize(
    ("ending", "status"), [("used", 404), ("uploaded by another", 409), ("expired", 404), ("used at the end", 404)]
)
async def test_an_upload_ends_within_seconds_once_its_ticket_is_used(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, status: int
) -> None:
    """By a request to another ingress replica."""
    assert (files.TICKET_POLL_S, files.IDLE_S, AT_ONCE) == (5, 60, 2)
    monkeypatch.setattr(files, "TICKET_POLL_S", 60 if ending == "used at the end" else 0.05)
    ticket, body = await ticket_of(api), Body()
    lent: Any = Lent(api.state.database)
    other = api.changed(state=State(lent, api.state.secrets, Rates(), api.state.blobs, api.state.clock))
    async with under_way(api, [body], [ticket]) as (running,):
        await asyncio.sleep(0.2)
        assert not running.done(), "the ticket is good: a slow client may go on"
        if ending == "uploaded by another":
            assert (await put(other, ticket)).status_code == 200
        elif ending == "expired":
            await pass_time(api.state.database, UPLOAD_S)
        else:
            refused(await transcribe(other, ticket), 404, "not_found")
        if ending == "used at the end":
            body.end(SOUND[5:])
        assert await asyncio.wait_for(running, 10) == status
    assert len(stored(tmp_path)) == (status == 409)
    await other.state.close()


async def test_an_upload_goes_on_while_its_ticket_cannot_be_looked_at(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "TICKET_POLL_S", 0.01)
    looked = [0]

    async def unreadable(ticket_id: str) -> Ticket | None:
        looked[0] += 1
        raise STATE_UNAVAILABLE()

    ticket, body = await ticket_of(api), Body()
    async with under_way(api, [body], [ticket]) as (running,):
        monkeypatch.setattr(api.state.tickets, "find", unreadable)
        await until(lambda: looked[0] >= 3)
        body.end(SOUND[5:])
        assert await running == 200
    assert [path.read_bytes() for path in stored(tmp_path)] == [SOUND]


async def test_429_more_uploads_at_once_than_an_organisation_may(api: Api) -> None:
    theirs = await ticket_of(api, key=await api.stranger())
    async with under_way(api, [Body() for _ in range(UPLOADS_OF_ORGANISATION - 1)]):
        assert (await put(api, await ticket_of(api))).status_code == 200
        async with under_way(api, [Body()]):
            reply = await put(api, await ticket_of(api))
            refused(reply, 429, "rate_limit_exceeded", says=f"{UPLOADS_OF_ORGANISATION} uploads")
            assert 1 <= int(reply.headers["retry-after"]) <= 3
            assert (await put(api, theirs)).status_code == 200
    assert (await put(api, await ticket_of(api))).status_code == 200


async def test_503_more_uploads_at_once_than_a_process_may(api: Api) -> None:
    api.service.concurrency.most_requests = 8  # of which a quarter may be uploads
    first, second, third, fourth = [await ticket_of(api) for _ in range(4)]
    async with under_way(api, [Body()], [first]):
        assert (await put(api, second)).status_code == 200
        async with under_way(api, [Body()], [third]):
            refused(await put(api, fourth), 503, "overloaded")


async def test_503_a_disk_that_fills_up_while_a_recording_comes_or_takes_nothing(api: Api, tmp_path: Path) -> None:
    ticket, left = await ticket_of(api, 300), iter([SPARE_BYTES + 100, SPARE_BYTES + 99])
    api.state.blobs = FolderBlobs(tmp_path / "bytes", lambda folder: next(left))
    reply = await put(api, ticket, in_pieces(bytes(100), bytes(100), bytes(100)))
    refused(reply, 503, "state_unavailable", says="disk for recordings is full")
    assert (await state_of(api, ticket), stored(tmp_path)) == ("issued", [])
    api.state.blobs = FolderBlobs(tmp_path / "bytes")
    (tmp_path / "bytes" / UNFINISHED).rmdir()
    refused(await put(api, ticket), 503, "state_unavailable")
    assert await state_of(api, ticket) == "issued"


@pytest.mark.parametrize(("idle_s", "left_s"), [(0.05, UPLOAD_S), (60, 0.05)])
async def test_408_an_upload_that_stops_coming_or_outlasts_its_ticket(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, idle_s: float, left_s: float
) -> None:
    monkeypatch.setattr(files, "IDLE_S", idle_s)
    ticket = await ticket_of(api)
    found = await api.state.tickets.find(ticket["upload_id"])
    assert found
    monkeypatch.setattr(api.state.clock, "now_s", found.expires_at - left_s)
    assert await asyncio.wait_for(put_raw(api, ticket, Body()), 30) == 408
    assert (await state_of(api, ticket), stored(tmp_path)) == ("issued", [])


async def test_408_a_body_that_brings_too_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deployments.ingress.front.bodies.BODY_GRACE_S", 0.05)
    fast, slow = in_slow_pieces(*[bytes(8192)] * 20), in_slow_pieces(*[b"x"] * 20)
    assert len([piece async for piece in with_stall_limit(fast, 60, 60)]) == 20
    with pytest.raises(ApiError, match="8192 bytes must arrive per second"):
        [_ async for _ in with_stall_limit(slow, 60, 60)]


async def in_slow_pieces(*pieces: bytes, pause_s: float = 0.01) -> AsyncGenerator[bytes, None]:
    for piece in pieces:
        yield piece
        await asyncio.sleep(pause_s)


async def test_only_an_upload_waits_for_an_engine_that_refuses_calls_while_it_starts(api: Api) -> None:
    handle = recognizing(api, "hello", when_cold="refuse").engine.handle
    ticket = await ticket_of(api)
    assert (await put(api, ticket)).status_code == 200
    handle.sleep()
    waiting = asyncio.create_task(transcribe(api, ticket))
    await until(lambda: handle.asked)
    await settled()
    assert not waiting.done()
    refused(await api.send("POST", "/v1/audio/transcriptions", files={"file": SOUND}), 503, "warming_up")
    handle.may_start.set()
    assert (await waiting).json()["text"] == "hello"


async def test_the_same_rules_hold_over_an_s3_store(api: Api, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    ticket = await ticket_of(api, 12_000_000)
    sound = os.urandom(12_000_000)
    refused(await put(api, ticket, sound + b"x"), 413, "request_too_large")
    refused(await put(api, ticket, in_pieces(sound, b"x")), 413, "request_too_large")
    refused(await put(api, ticket, sound, **{"content-type": "audio/ogg"}), 415, "unsupported_media_type")
    bucket.fault = "refuses"
    refused(await put(api, ticket, sound), 503, "state_unavailable")
    bucket.fault = ""
    assert (bucket.objects, await state_of(api, ticket)) == ({}, "issued")
    assert (await put(api, ticket, in_pieces(sound[:7_000_000], sound[7_000_000:]))).status_code == 200
    refused(await put(api, ticket, sound), 409, "already_uploaded")
    consumed = await api.state.tickets.consume(1, ticket["upload_id"])
    address = await api.state.blobs.address(consumed.blob, 60)
    monkeypatch.setattr(adapter, "UPLOAD_BYTES", len(sound))
    async with adapter.fetched(address) as file:
        assert isinstance(file, Path)
        assert file.read_bytes() == sound
    monkeypatch.setattr(adapter, "UPLOAD_BYTES", len(sound) - 1)
    for wrong in (address, f"{bucket.url}/bucket/nothing"):
        with pytest.raises(ApiError, match="502"):
            async with adapter.fetched(wrong):
                pass
    await api.state.tickets.discard(consumed)
    assert bucket.objects == {}


def settings_of(server: Bucket) -> dict[str, str]:
    """Environment of a process that keeps its bytes in `server`."""
    settings = {"ENDPOINT_URL": server.url, "ALLOW_HTTP": "true", "ACCESS_KEY_ID": "x", "SECRET_ACCESS_KEY": "x"}
    return {f"AWS_{name}": value for name, value in settings.items()}


@pytest.fixture
def bucket(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """The store of `api`."""
    with run_bucket() as server:
        for name, value in settings_of(server).items():
            monkeypatch.setenv(name, value)
        api.state.blobs = open_blobs(tmp_path, "s3://store/some/prefix")
        api.state.tickets = Tickets(api.state.database, api.state.blobs)
        yield server


CLIENTS = 8


def memory_of(process: subprocess.Popen[str], name: str) -> int:
    """`VmRSS`, what it occupies, or `VmHWM`, the most that it ever did, in bytes."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.findall(rf"{name}:\s+(\d+) kB", status)[0]) * 1024


@pytest.mark.parametrize("store", [(), ("s3://store",)])
@pytest.mark.parametrize("size_mib", [24, pytest.param(100, marks=pytest.mark.slow)])
def test_eight_uploads_at_once_do_not_grow_the_server_by_what_they_bring(
    tmp_path: Path, store: tuple[str, ...], size_mib: int
) -> None:
    def upload(size: int) -> int:
        """The status of an upload whose length is not declared: it comes as fast as the socket takes it."""
        reply = httpx.post(f"{address}{PATH}", json={"mime": "audio/webm", "size": size * MIB}, headers=headers)
        pieces = (bytes(MIB) for _ in range(size))
        return httpx.put(reply.json()["upload_url"], content=pieces, headers=WEBM, timeout=60).status_code

    command = [sys.executable, "-m", "tests.api.serving", str(tmp_path), *store]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with run_bucket() as bucket:
        settings = {"RAY_SERVE_THROUGHPUT_OPTIMIZED": "1", "OMP_NUM_THREADS": "1", **settings_of(bucket)}
        with subprocess.Popen(command, cwd=ROOT, env=os.environ | settings, **pipes) as process:
            assert process.stdout is not None
            port, key = process.stdout.readline().split()
            address, headers = f"http://127.0.0.1:{port}", {"authorization": f"Bearer {key}"}
            assert upload(1) == 200
            before = memory_of(process, "VmRSS")
            with ThreadPoolExecutor(CLIENTS) as pool:
                assert list(pool.map(upload, [size_mib] * CLIENTS)) == [200] * CLIENTS
            grown = memory_of(process, "VmHWM") - before
            process.communicate(timeout=30)
    print(f"{CLIENTS} uploads of {size_mib} MiB: {grown / MIB:.0f} MiB more")
    assert grown < 150 * MIB
