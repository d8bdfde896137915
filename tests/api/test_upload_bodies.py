"""Uploads that do not behave: slow, broken off, too many at once, on a full disk, over a store that fails."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import httpx
import pytest

from contract.access import Scope
from contract.errors import STATE_UNAVAILABLE, ApiError
from contract.limits import SPARE_BYTES, UPLOAD_S, UPLOADS_OF_ORGANISATION
from deployments.ingress.flows.uploads import AT_ONCE
from deployments.ingress.front.bodies import with_stall_limit
from state.blobs.base import open_blobs
from state.blobs.folder import UNFINISHED, FolderBlobs
from state.tickets import Ticket, Tickets
from tests.api.conftest import Api, refused
from tests.api.uploads import (
    PATH,
    SOUND,
    Slow,
    Stalled,
    in_pieces,
    put,
    put_raw,
    state_of,
    stored,
    ticket_of,
    transcribe,
)
from tests.state.books import pass_time
from tests.state.bucket import Bucket, run_bucket
from tests.waiting import until


async def test_of_two_puts_at_once_one_wins_and_the_bytes_of_the_other_are_gone(api: Api, tmp_path: Path) -> None:
    ticket, slow = await ticket_of(api), Slow()
    first = asyncio.create_task(put_raw(api, ticket, slow))
    await slow.reached.wait()
    assert await put_raw(api, ticket, in_pieces(b"faster")) == 200
    slow.go.set()
    assert await first == 409
    assert [path.read_bytes() for path in stored(tmp_path)] == [b"faster"]


async def test_many_puts_at_once_are_not_all_taken(api: Api, tmp_path: Path) -> None:
    ticket, bodies = await ticket_of(api), [Slow() for _ in range(AT_ONCE)]
    running = [asyncio.create_task(put_raw(api, ticket, body)) for body in bodies]
    await asyncio.gather(*(body.reached.wait() for body in bodies))
    refused(await put(api, ticket), 429, "busy")
    for body in bodies:
        body.go.set()
    assert sorted(await asyncio.gather(*running)) == [200, 409]
    refused(await put(api, ticket), 409, "already_uploaded")
    assert len(stored(tmp_path)) == 1


async def test_a_client_that_goes_away_in_the_middle_leaves_nothing(api: Api, tmp_path: Path) -> None:
    ticket, slow = await ticket_of(api), Slow(ConnectionResetError)
    running = asyncio.create_task(put_raw(api, ticket, slow))
    await slow.reached.wait()
    assert len(list((tmp_path / "bytes" / UNFINISHED).iterdir())) == 1
    slow.go.set()
    assert await running == 400
    assert await state_of(api, ticket) == "issued"
    assert stored(tmp_path) == []
    assert (await put(api, ticket)).status_code == 200


async def test_a_request_that_is_cancelled_leaves_nothing(api: Api, tmp_path: Path) -> None:
    ticket, slow = await ticket_of(api), Slow()
    running = asyncio.create_task(put_raw(api, ticket, slow))
    await slow.reached.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await state_of(api, ticket) == "issued"
    assert stored(tmp_path) == []
    assert (await put(api, ticket)).status_code == 200


async def test_a_ticket_that_is_consumed_meanwhile_takes_nothing(api: Api, tmp_path: Path) -> None:
    ticket, slow = await ticket_of(api), Slow()
    running = asyncio.create_task(put_raw(api, ticket, slow))
    await slow.reached.wait()
    with pytest.raises(ApiError, match="nothing was uploaded"):
        await api.state.tickets.consume(1, ticket["upload_id"])
    slow.go.set()
    assert await running == 404
    assert stored(tmp_path) == []


@pytest.mark.parametrize("ending", ["used", "uploaded by another", "expired"])
async def test_an_upload_ends_within_seconds_once_its_ticket_is_used(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    monkeypatch.setattr("deployments.ingress.routes.files.TICKET_POLL_S", 0.05)
    ticket, body = await ticket_of(api), Stalled()
    running = asyncio.create_task(put_raw(api, ticket, body))
    await body.reached.wait()
    await asyncio.sleep(0.2)
    assert not running.done(), "the ticket is good: whoever sends slowly may"
    if ending == "used":
        # In this process or another one: what is looked at is the row.
        refused(await transcribe(api, ticket), 404, "not_found")
    elif ending == "uploaded by another":
        assert (await put(api, ticket)).status_code == 200
    else:
        await pass_time(api.state.database, UPLOAD_S)
    assert await asyncio.wait_for(running, 10) == (409 if ending == "uploaded by another" else 404)
    assert len(stored(tmp_path)) == (1 if ending == "uploaded by another" else 0)


class Unreadable(Tickets):
    """Tickets of a database that does not answer for a while."""

    looked = 0

    async def find(self, ticket_id: str) -> Ticket | None:
        self.looked += 1
        raise STATE_UNAVAILABLE()


async def test_an_upload_goes_on_while_its_ticket_cannot_be_looked_at(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deployments.ingress.routes.files.TICKET_POLL_S", 0.01)
    ticket, body = await ticket_of(api), Stalled()
    running = asyncio.create_task(put_raw(api, ticket, body))
    await body.reached.wait()
    api.state.tickets = unreadable = Unreadable(api.state.database, api.state.blobs)
    await until(lambda: unreadable.looked >= 3)
    body.coming.put_nowait(SOUND[1:])
    body.coming.put_nowait(None)
    assert await running == 200
    assert [path.read_bytes() for path in stored(tmp_path)] == [SOUND]


@pytest.mark.parametrize(("under_way", "status"), [(UPLOADS_OF_ORGANISATION - 1, 200), (UPLOADS_OF_ORGANISATION, 429)])
async def test_429_more_uploads_at_once_than_an_organisation_may(api: Api, under_way: int, status: int) -> None:
    await api.organisation("other")
    theirs = await ticket_of(api, key=await api.key(*Scope, org="other"))
    bodies = [Stalled() for _ in range(under_way)]
    running = [asyncio.create_task(put_raw(api, await ticket_of(api), body)) for body in bodies]
    await asyncio.gather(*(body.reached.wait() for body in bodies))
    reply = await put(api, await ticket_of(api))
    assert reply.status_code == status
    if status == 429:
        refused(reply, 429, "rate_limit_exceeded", says=f"{UPLOADS_OF_ORGANISATION} uploads")
        assert 1 <= int(reply.headers["retry-after"]) <= 3
    assert (await put(api, theirs)).status_code == 200
    for one in running:
        one.cancel()
    await asyncio.wait(running)
    assert (await put(api, await ticket_of(api))).status_code == 200


@pytest.mark.parametrize(("under_way", "status"), [(1, 200), (2, 503)])
async def test_503_more_uploads_at_once_than_a_process_may(api: Api, under_way: int, status: int) -> None:
    api.service.concurrency.most_requests = 8  # of which a quarter may be uploads
    tickets, bodies = [await ticket_of(api) for _ in range(under_way + 1)], [Stalled() for _ in range(under_way)]
    running = [asyncio.create_task(put_raw(api, ticket, body)) for ticket, body in zip(tickets, bodies, strict=False)]
    await asyncio.gather(*(body.reached.wait() for body in bodies))
    reply = await put(api, tickets[-1])
    assert reply.status_code == status
    if status == 503:
        refused(reply, 503, "overloaded")
    for one in running:
        one.cancel()
    await asyncio.wait(running)


@pytest.mark.parametrize(("free", "status"), [(-1, 503), (0, 200), (1, 200)])
async def test_503_no_ticket_where_the_disk_must_keep_what_is_free(
    api: Api, tmp_path: Path, free: int, status: int
) -> None:
    """What stays free holds the database's own growth; a ticket is good for its whole size, and leaves as much."""
    api.state.blobs = FolderBlobs(tmp_path / "bytes", lambda folder: SPARE_BYTES + 2000 + free)
    reply = await api.send("POST", PATH, json={"mime": "audio/webm", "size": 1000})
    assert reply.status_code == status
    if status == 503:
        refused(reply, 503, "state_unavailable", says="disk for recordings is full")
        assert reply.headers["retry-after"] == "60"


@pytest.mark.parametrize(("free", "status"), [(-1, 429), (0, 200), (1, 200)])
async def test_429_tickets_of_an_organisation_leave_room_to_others(
    api: Api, tmp_path: Path, free: int, status: int
) -> None:
    """Nothing has come under the first one, but will."""
    api.state.blobs = FolderBlobs(tmp_path / "bytes", lambda folder: SPARE_BYTES + 4000 + free)
    await ticket_of(api, 1000)
    reply = await api.send("POST", PATH, json={"mime": "audio/webm", "size": 1000})
    assert reply.status_code == status
    if status == 429:
        refused(reply, 429, "rate_limit_exceeded", says="unused tickets for 1000 bytes")
        assert reply.headers["retry-after"] == "60"


async def test_503_a_disk_that_fills_up_while_a_recording_comes(api: Api, tmp_path: Path) -> None:
    ticket, left = await ticket_of(api, 300), iter([SPARE_BYTES + 100, SPARE_BYTES + 99])
    api.state.blobs = FolderBlobs(tmp_path / "bytes", lambda folder: next(left))
    reply = await put(api, ticket, in_pieces(bytes(100), bytes(100), bytes(100)))
    refused(reply, 503, "state_unavailable", says="disk for recordings is full")
    assert await state_of(api, ticket) == "issued"
    assert stored(tmp_path) == []


async def test_503_a_disk_that_takes_no_more(api: Api, tmp_path: Path) -> None:
    ticket = await ticket_of(api)
    (tmp_path / "bytes" / UNFINISHED).rmdir()
    refused(await put(api, ticket), 503, "state_unavailable")
    assert await state_of(api, ticket) == "issued"


# --- stalls -----------------------------------------------------------------------------------------------------------


async def test_408_a_body_that_stops_coming() -> None:
    source = Slow().__aiter__()
    body = with_stall_limit(source, 0.01, 60)
    assert await anext(body) == SOUND[:5]
    with pytest.raises(ApiError) as caught:
        await anext(body)
    assert (caught.value.fault.status, caught.value.fault.code) == (408, "request_timeout")
    with pytest.raises(StopAsyncIteration):
        await anext(source)


async def test_408_a_body_that_trickles_until_the_ticket_has_expired() -> None:
    async def trickle() -> AsyncGenerator[bytes, None]:
        while True:
            await asyncio.sleep(0.001)
            yield b"x"

    body = with_stall_limit(trickle(), 60, 0.05)
    assert await anext(body) == b"x"
    with pytest.raises(ApiError, match="arrived too slowly"):
        await _all(body)


async def test_408_a_body_that_brings_less_than_it_must(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deployments.ingress.front.bodies.BODY_GRACE_S", 0.05)

    async def pieces(size: int) -> AsyncGenerator[bytes, None]:
        for _ in range(20):
            await asyncio.sleep(0.01)
            yield bytes(size)

    assert len(await _all(with_stall_limit(pieces(8192), 60, 60))) == 20
    with pytest.raises(ApiError, match="8192 bytes must arrive per second"):
        await _all(with_stall_limit(pieces(1), 60, 60))


async def _all(chunks: AsyncGenerator[bytes, None]) -> list[bytes]:
    return [chunk async for chunk in chunks]


# --- an S3 store ------------------------------------------------------------------------------------------------------


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    with run_bucket() as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
        yield server


@pytest.fixture
def s3(api: Api, bucket: Bucket, tmp_path: Path) -> Api:
    """The app over that store."""
    api.state.blobs = open_blobs(tmp_path, "s3://store/some/prefix")
    api.state.tickets = Tickets(api.state.database, api.state.blobs)
    return api


async def test_the_same_rules_hold_over_an_s3_store(s3: Api, bucket: Bucket) -> None:
    ticket = await ticket_of(s3, 12_000_000)
    sound = os.urandom(12_000_000)
    refused(await put(s3, ticket, sound + b"x"), 413, "request_too_large")
    refused(await put(s3, ticket, in_pieces(sound, b"x")), 413, "request_too_large")
    refused(await put(s3, ticket, sound, **{"content-type": "audio/ogg"}), 415, "unsupported_media_type")
    assert bucket.objects == {}
    assert (await put(s3, ticket, in_pieces(sound[:7_000_000], sound[7_000_000:]))).status_code == 200
    refused(await put(s3, ticket, sound), 409, "already_uploaded")
    consumed = await s3.state.tickets.consume(1, ticket["upload_id"])
    async with httpx.AsyncClient() as engine:
        assert (await engine.get(await s3.state.blobs.address(consumed.blob, 60))).content == sound
    await s3.state.tickets.discard(consumed)
    assert bucket.objects == {}


async def test_a_store_that_fails_leaves_the_ticket_issued(s3: Api, bucket: Bucket) -> None:
    ticket = await ticket_of(s3)
    bucket.broken = True
    refused(await put(s3, ticket), 503, "state_unavailable")
    assert await state_of(s3, ticket) == "issued"
    bucket.broken = False
    assert (await put(s3, ticket)).status_code == 200
