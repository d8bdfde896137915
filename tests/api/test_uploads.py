"""POST /audio/uploads, and PUT /files: every row of the spec's tables of upload tickets, over the real app."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from contract.access import Scope
from contract.errors import STATE_UNAVAILABLE, ApiError
from contract.limits import OPEN_UPLOADS, SPARE_BYTES, UPLOAD_BYTES, UPLOAD_S, UPLOADS_OF_ORGANISATION
from contract.transcription.uploads import RECORDING_TYPES
from deployments.ingress.app import build_app
from deployments.ingress.context import Service
from deployments.ingress.flows.uploads import AT_ONCE
from deployments.ingress.front.bodies import with_stall_limit
from deployments.ingress.wire.addresses import public_address
from state import State, open_state
from state.blobs.folder import UNFINISHED, FolderBlobs
from state.blobs.signatures import FILES_PURPOSE, Signatures
from state.tickets import Ticket, Tickets
from tests.api.conftest import Api, LocalEngine
from tests.catalogs import behaving, chat
from tests.state.books import pass_time
from tests.state.bucket import Bucket, run_bucket
from tests.waiting import until

pytestmark = pytest.mark.anyio

PATH = "/v1/audio/uploads"
SOUND = b"the sound of a voice"
WEBM = {"content-type": "audio/webm"}


async def ticket_of(api: Api, size: int = len(SOUND), mime: str = "audio/webm", **options: Any) -> dict[str, Any]:
    reply = await api.send("POST", PATH, json={"mime": mime, "size": size}, **options)
    assert reply.status_code == 200, reply.text
    ticket: dict[str, Any] = reply.json()
    return ticket


async def put(api: Api, ticket: dict[str, Any], body: Any = SOUND, **headers: str) -> httpx.Response:
    return await api.client.put(ticket["upload_url"], content=body, headers=WEBM | headers)


async def put_raw(api: Api, ticket: dict[str, Any], body: Any, *headers: tuple[bytes, bytes]) -> int:
    """The status of a PUT whose body the app reads as it comes; a body that raises is a client that goes away."""
    parts = urlsplit(ticket["upload_url"])
    pieces = aiter(body)

    async def receive() -> dict[str, Any]:
        try:
            return {"type": "http.request", "body": await anext(pieces), "more_body": True}
        except StopAsyncIteration:
            return {"type": "http.request", "body": b"", "more_body": False}
        except ConnectionResetError:
            return {"type": "http.disconnect"}

    statuses: list[int] = []

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "scheme": "http",
        "method": "PUT",
        "path": parts.path,
        "raw_path": parts.path.encode(),
        "root_path": "",
        "query_string": parts.query.encode(),
        "headers": [(b"content-type", b"audio/webm"), *headers],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    await build_app(api.service)(scope, receive, send)
    return statuses[0]


async def in_pieces(*pieces: bytes) -> AsyncGenerator[bytes, None]:
    """A body without a declared length."""
    for piece in pieces:
        yield piece


def refused(reply: httpx.Response, status: int, code: str) -> str:
    """The message of an error, after its status and code were looked at."""
    assert (reply.status_code, reply.json()["error"]["code"]) == (status, code), reply.text
    message: str = reply.json()["error"]["message"]
    return message


async def state_of(api: Api, ticket: dict[str, Any]) -> str:
    found = await api.state.tickets.find(ticket["upload_id"])
    assert found is not None
    return found.state


def stored(tmp_path: Path) -> list[Path]:
    """All files of the store, finished or not."""
    return [path for path in (tmp_path / "bytes").rglob("*") if path.is_file()]


# --- POST /audio/uploads ---------------------------------------------------------------------------------------------


async def test_issued_a_ticket_says_where_and_as_what(api: Api) -> None:
    ticket = await ticket_of(api)
    assert set(ticket) == {"upload_id", "upload_url", "token", "content_type", "max_bytes"}
    assert ticket["upload_id"].startswith("upl_")
    assert ticket["upload_url"].startswith(f"http://test/files/uploads/{ticket['upload_id']}?expires=")
    assert ticket["upload_url"].endswith(ticket["token"])
    assert len(ticket["token"]) == 64
    assert (ticket["content_type"], ticket["max_bytes"]) == ("audio/webm", 104_857_600)
    assert await state_of(api, ticket) == "issued"


async def test_issuing_bills_nothing(api: Api) -> None:
    await api.limit(1)
    await put(api, await ticket_of(api))
    assert await api.usage() == []


async def test_issuing_wakes_the_transcriber(api: Api) -> None:
    engines: Any = api.service.engines
    await ticket_of(api)
    assert engines["transcription-voxtral-mini-transcribe"].warmed == 1
    body = {"mime": "audio/webm", "size": 1}
    await api.send("POST", PATH, json=body | {"model": "whisper-large-v3"})
    await api.send("POST", PATH, json=body | {"model": "whisper-1"})
    assert engines["transcription-whisper-large-v3"].warmed == 1
    assert engines["transcription-voxtral-mini-transcribe"].warmed == 2


@pytest.mark.parametrize("mime", RECORDING_TYPES)
async def test_every_type_of_the_spec_is_taken(api: Api, mime: str) -> None:
    assert (await ticket_of(api, mime=f"{mime.upper()}; codecs=opus"))["content_type"] == mime


@pytest.mark.parametrize(
    "mime", ["", "audio", "audio/x-wav", "audio/amr", "video/webm", "text/html", "audio/webm\0", "*/*"]
)
async def test_415_mime_not_allowed(api: Api, mime: str) -> None:
    # Also where the size is wrong as well: the type comes first.
    for size in (1, UPLOAD_BYTES + 1):
        reply = await api.send("POST", PATH, json={"mime": mime, "size": size})
        assert "audio/flac" in refused(reply, 415, "unsupported_media_type")
    assert await api.state.tickets.find("upl_" + "a" * 26) is None


@pytest.mark.parametrize(("size", "status"), [(UPLOAD_BYTES - 1, 200), (UPLOAD_BYTES, 200), (UPLOAD_BYTES + 1, 413)])
async def test_413_size_over_100_mib(api: Api, size: int, status: int) -> None:
    reply = await api.send("POST", PATH, json={"mime": "audio/webm", "size": size})
    assert reply.status_code == status
    if status == 413:
        assert str(UPLOAD_BYTES) in refused(reply, 413, "request_too_large")


@pytest.mark.parametrize(
    "body",
    [{}, {"mime": "audio/webm"}, {"size": 1}, *({"mime": "audio/webm", "size": n} for n in (0, -1, "1", 1.5, None))],
    ids=str,
)
async def test_400_what_is_no_request(api: Api, body: dict[str, Any]) -> None:
    refused(await api.send("POST", PATH, json=body), 400, "invalid_request_error")


async def test_401_and_403_without_key_and_scope(api: Api) -> None:
    body = {"mime": "audio/webm", "size": 1}
    refused(await api.client.post(PATH, json=body), 401, "missing_api_key")
    refused(await api.send("POST", PATH, await api.key(Scope.SPEECH), json=body), 403, "missing_scope")
    assert (await api.send("POST", PATH, await api.key(Scope.TRANSCRIBE), json=body)).status_code == 200


async def test_503_where_no_transcription_is_set_up(api: Api, state: State) -> None:
    catalog = api.service.catalog
    known = {id: model.model_copy(update={"serving": None}) for id, model in catalog.transcription.items()}
    service = dataclasses.replace(api.service, catalog=catalog.model_copy(update={"transcription": known}))
    api.client = httpx.AsyncClient(transport=httpx.ASGITransport(build_app(service)), base_url="http://test")
    async with api.client:
        reply = await api.send("POST", PATH, json={"mime": "audio/webm", "size": 1})
        refused(reply, 503, "not_configured")
        # What could never succeed says so first.
        refused(await api.send("POST", PATH, json={"mime": "x", "size": 1}), 415, "unsupported_media_type")


async def test_429_beyond_so_many_unused_tickets(api: Api) -> None:
    tickets = [await ticket_of(api) for _ in range(OPEN_UPLOADS)]
    reply = await api.send("POST", PATH, json={"mime": "audio/webm", "size": 1})
    refused(reply, 429, "rate_limit_exceeded")
    assert reply.headers["retry-after"] == "60"
    await put(api, tickets[0])
    await api.state.tickets.consume(1, tickets[0]["upload_id"])
    await ticket_of(api)


async def test_a_repeated_request_gets_the_same_ticket(api: Api) -> None:
    key = {"Idempotency-Key": "once"}
    first, again = [await ticket_of(api, headers=key) for _ in range(2)]
    assert first == again
    assert (await ticket_of(api))["upload_id"] != first["upload_id"]
    reply = await api.send("POST", PATH, json={"mime": "audio/webm", "size": 2}, headers=key)
    refused(reply, 422, "idempotency_mismatch")


# --- PUT -------------------------------------------------------------------------------------------------------------


async def test_uploaded_once_bytes_were_put(api: Api) -> None:
    ticket = await ticket_of(api)
    reply = await put(api, ticket)
    assert (reply.status_code, reply.json()) == (200, {"upload_id": ticket["upload_id"], "size": len(SOUND)})
    assert await state_of(api, ticket) == "uploaded"
    consumed = await api.state.tickets.consume(1, ticket["upload_id"])
    assert await api.state.blobs.find(consumed.blob) == SOUND


async def test_no_key_is_needed_and_none_helps(api: Api) -> None:
    ticket = await ticket_of(api)
    bare = ticket["upload_url"].partition("?")[0]
    reply = await api.send("PUT", bare, content=SOUND, headers=WEBM)
    refused(reply, 403, "invalid_signature")
    assert (await put(api, ticket)).status_code == 200


@pytest.mark.parametrize(("size", "status"), [(len(SOUND) - 1, 413), (len(SOUND), 200), (len(SOUND) + 1, 200)])
@pytest.mark.parametrize("declared", [True, False])
async def test_413_longer_than_the_ticket(api: Api, tmp_path: Path, size: int, status: int, declared: bool) -> None:
    ticket = await ticket_of(api, size)
    reply = await put(api, ticket, SOUND if declared else in_pieces(SOUND[:5], SOUND[5:]))
    assert reply.status_code == status
    if status == 413:
        assert str(size) in refused(reply, 413, "request_too_large")
        assert await state_of(api, ticket) == "issued"
        assert stored(tmp_path) == []


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


@pytest.mark.parametrize("kind", ["audio/ogg", "", "application/octet-stream", "audio/webmm", "multipart/form-data"])
async def test_415_another_content_type(api: Api, tmp_path: Path, kind: str) -> None:
    ticket = await ticket_of(api)
    reply = await api.client.put(ticket["upload_url"], content=SOUND, headers={"content-type": kind})
    assert "content-type: audio/webm" in refused(reply, 415, "unsupported_media_type")
    assert await state_of(api, ticket) == "issued"
    assert stored(tmp_path) == []


async def test_parameters_of_a_content_type_do_not_matter(api: Api) -> None:
    reply = await put(api, await ticket_of(api), **{"content-type": "Audio/WebM;codecs=opus"})
    assert reply.status_code == 200


async def test_415_compressed_on_the_way(api: Api) -> None:
    reply = await put(api, await ticket_of(api), **{"content-encoding": "gzip"})
    refused(reply, 415, "unsupported_media_type")


async def test_403_a_changed_address(api: Api) -> None:
    ticket, other = await ticket_of(api), await ticket_of(api)
    address = ticket["upload_url"]
    expires = address.partition("expires=")[2].partition("&")[0]
    changed = [
        address.replace(ticket["upload_id"], other["upload_id"]),
        address.replace("/uploads/", "/samples/"),
        address.replace(f"expires={expires}", f"expires={int(expires) + 1}"),
        address.replace(ticket["token"], other["token"]),
        address[:-1] + ("0" if address[-1] != "0" else "1"),
        address[:-1],
        f"{address}&x=1",
        address.partition("?")[0],
        address.replace("?", "/x?"),
        address.replace("/files/uploads", "/files/x/%2e%2e/uploads"),
        address.replace("/files/uploads", "/files//uploads"),
    ]
    for wrong in changed:
        reply = await api.client.put(wrong, content=SOUND, headers=WEBM)
        refused(reply, 403, "invalid_signature")
    assert [await state_of(api, each) for each in (ticket, other)] == ["issued", "issued"]


@pytest.mark.parametrize(("left_s", "status"), [(-1, 403), (0, 403), (3600, 200)])
async def test_403_an_expired_address(api: Api, left_s: int, status: int) -> None:
    ticket = await ticket_of(api)
    found = await api.state.tickets.find(ticket["upload_id"])
    assert found is not None
    query = api.state.signatures.sign(found.name, int(time.time()) + left_s, "PUT")
    reply = await api.client.put(f"/files/{found.name}?{query}", content=SOUND, headers=WEBM)
    assert reply.status_code == status
    if status == 403:
        assert "expired" in refused(reply, 403, "invalid_signature")


async def test_an_address_lasts_as_long_as_its_ticket(api: Api) -> None:
    ticket = await ticket_of(api)
    found = await api.state.tickets.find(ticket["upload_id"])
    assert found is not None
    name, query = found.name, ticket["upload_url"].partition("?")[2]
    keyring = api.state.secrets.derive(FILES_PURPOSE)
    Signatures(keyring, lambda: found.expires_at - 1).verify(name, query, "PUT")
    with pytest.raises(ApiError, match="expired"):
        Signatures(keyring, lambda: found.expires_at).verify(name, query, "PUT")
    assert 0 <= time.time() + UPLOAD_S - found.expires_at < 60


async def test_409_a_second_put(api: Api, tmp_path: Path) -> None:
    ticket = await ticket_of(api)
    await put(api, ticket)
    reply = await put(api, ticket, b"another sound")
    refused(reply, 409, "already_uploaded")
    assert reply.headers["x-should-retry"] == "false"
    assert [path.read_bytes() for path in stored(tmp_path)] == [SOUND]


async def test_404_a_ticket_that_was_used(api: Api, tmp_path: Path) -> None:
    ticket = await ticket_of(api)
    await put(api, ticket)
    await api.state.tickets.discard(await api.state.tickets.consume(1, ticket["upload_id"]))
    refused(await put(api, ticket), 404, "not_found")
    assert stored(tmp_path) == []


async def test_404_a_ticket_whose_row_is_gone(api: Api) -> None:
    name = f"uploads/upl_{'a' * 26}"
    query = api.state.signatures.sign(name, int(time.time()) + 60, "PUT")
    refused(await api.client.put(f"/files/{name}?{query}", content=SOUND, headers=WEBM), 404, "not_found")


@pytest.mark.parametrize("declared", [True, False])
async def test_400_nothing_came(api: Api, tmp_path: Path, declared: bool) -> None:
    ticket = await ticket_of(api)
    refused(await put(api, ticket, b"" if declared else in_pieces()), 400, "invalid_request_error")
    assert await state_of(api, ticket) == "issued"
    assert stored(tmp_path) == []
    assert (await put(api, ticket)).status_code == 200


# --- transcriptions of uploaded recordings ---------------------------------------------------------------------------


async def transcribe(api: Api, ticket: dict[str, Any], key: str | None = None) -> httpx.Response:
    return await api.send("POST", "/v1/audio/transcriptions", key, json={"upload_id": ticket["upload_id"]})


async def test_consumed_once_a_transcription_succeeded(api: Api, tmp_path: Path) -> None:
    ticket = await ticket_of(api)
    await put(api, ticket)
    # Another key of the same organisation may.
    reply = await transcribe(api, ticket, await api.key(Scope.TRANSCRIBE))
    assert (reply.status_code, reply.json()) == (200, {"text": SOUND.decode()})
    assert await state_of(api, ticket) == "consumed"
    assert stored(tmp_path) == []
    refused(await transcribe(api, ticket), 404, "not_found")
    refused(await put(api, ticket), 404, "not_found")


async def test_consumed_once_a_transcription_failed(api: Api, tmp_path: Path) -> None:
    ticket = await ticket_of(api)
    await put(api, ticket, b"fail")
    refused(await transcribe(api, ticket), 502, "upstream_error")
    assert await state_of(api, ticket) == "consumed"
    assert stored(tmp_path) == []
    refused(await transcribe(api, ticket), 404, "not_found")


async def test_404_bytes_never_uploaded_consume_the_ticket(api: Api) -> None:
    ticket = await ticket_of(api)
    assert "nothing was uploaded" in refused(await transcribe(api, ticket), 404, "not_found")
    assert await state_of(api, ticket) == "consumed"
    refused(await put(api, ticket), 404, "not_found")


async def test_404_a_ticket_of_another_organisation(api: Api) -> None:
    await api.organisation("other")
    ticket = await ticket_of(api)
    await put(api, ticket)
    foreign = refused(await transcribe(api, ticket, await api.key(*Scope, org="other")), 404, "not_found")
    unknown = refused(await transcribe(api, {"upload_id": f"upl_{'a' * 26}"}), 404, "not_found")
    assert foreign.replace(ticket["upload_id"], "") == unknown.replace(f"upl_{'a' * 26}", "")
    assert (await transcribe(api, ticket)).status_code == 200


async def test_of_50_transcriptions_at_once_exactly_one_runs(api: Api) -> None:
    ticket = await ticket_of(api)
    await put(api, ticket)
    replies = await asyncio.gather(*(transcribe(api, ticket) for _ in range(50)))
    statuses = sorted(reply.status_code for reply in replies)
    assert statuses == [200, *[404] * 49]
    assert len(await api.usage()) == 1


# --- what an address is not for --------------------------------------------------------------------------------------


async def test_what_was_uploaded_cannot_be_downloaded(api: Api) -> None:
    ticket = await ticket_of(api)
    await put(api, ticket)
    found = await api.state.tickets.find(ticket["upload_id"])
    assert found is not None
    query = ticket["upload_url"].partition("?")[2]
    for name in (found.name, found.blob):
        refused(await api.client.get(f"/files/{name}?{query}"), 403, "invalid_signature")
    assert (await api.client.head(ticket["upload_url"])).status_code == 405


async def test_an_address_that_plays_a_sample_takes_no_bytes(api: Api) -> None:
    await api.state.blobs.put("voices/1/sample.mp3", b"a sample")
    query = api.state.signatures.sign("voices/1/sample.mp3", int(time.time()) + 60, "GET")
    reply = await api.client.put(f"/files/voices/1/sample.mp3?{query}", content=SOUND, headers=WEBM)
    refused(reply, 403, "invalid_signature")
    assert await api.state.blobs.find("voices/1/sample.mp3") == b"a sample"


async def test_only_names_of_tickets_take_bytes(api: Api) -> None:
    ticket = await ticket_of(api)
    for name in ("voices/1/sample.mp3", f"voices/{ticket['upload_id']}", f"uploads/x/{ticket['upload_id']}"):
        query = api.state.signatures.sign(name, int(time.time()) + 60, "PUT")
        refused(await api.client.put(f"/files/{name}?{query}", content=SOUND, headers=WEBM), 404, "not_found")


# --- bodies that do not behave ---------------------------------------------------------------------------------------


class Slow:
    """A body that waits in the middle until it is told to go on."""

    def __init__(self, error: type[BaseException] | None = None) -> None:
        self.reached, self.go = asyncio.Event(), asyncio.Event()
        self._error = error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield SOUND[:5]
        self.reached.set()
        await self.go.wait()
        if self._error:
            raise self._error
        yield SOUND[5:]


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


class Stalled:
    """A body that has sent a byte and then stands still; a wait for more can be given up, as on a real connection."""

    def __init__(self) -> None:
        self.coming: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.coming.put_nowait(SOUND[:1])
        self.reached = asyncio.Event()

    def __aiter__(self) -> Stalled:
        return self

    async def __anext__(self) -> bytes:
        if self.coming.empty():
            self.reached.set()
        piece = await self.coming.get()
        if piece is None:
            raise StopAsyncIteration
        return piece


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
        assert f"{UPLOADS_OF_ORGANISATION} uploads" in refused(reply, 429, "rate_limit_exceeded")
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


@pytest.mark.parametrize(("free", "status"), [(-1, 503), (0, 200), (1, 200)])
async def test_503_no_ticket_where_the_disk_must_keep_what_is_free(
    api: Api, tmp_path: Path, free: int, status: int
) -> None:
    """What stays free holds the database's own growth; a ticket is good for its whole size, and leaves as much."""
    api.state.blobs = FolderBlobs(tmp_path / "bytes", lambda folder: SPARE_BYTES + 2000 + free)
    reply = await api.send("POST", PATH, json={"mime": "audio/webm", "size": 1000})
    assert reply.status_code == status
    if status == 503:
        assert "disk for recordings is full" in refused(reply, 503, "state_unavailable")
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
        assert "unused tickets for 1000 bytes" in refused(reply, 429, "rate_limit_exceeded")
        assert reply.headers["retry-after"] == "60"


async def test_503_a_disk_that_fills_up_while_a_recording_comes(api: Api, tmp_path: Path) -> None:
    ticket, left = await ticket_of(api, 300), iter([SPARE_BYTES + 100, SPARE_BYTES + 99])
    api.state.blobs = FolderBlobs(tmp_path / "bytes", lambda folder: next(left))
    reply = await put(api, ticket, in_pieces(bytes(100), bytes(100), bytes(100)))
    assert "disk for recordings is full" in refused(reply, 503, "state_unavailable")
    assert await state_of(api, ticket) == "issued"
    assert stored(tmp_path) == []


async def test_503_a_disk_that_takes_no_more(api: Api, tmp_path: Path) -> None:
    ticket = await ticket_of(api)
    (tmp_path / "bytes" / UNFINISHED).rmdir()
    refused(await put(api, ticket), 503, "state_unavailable")
    assert await state_of(api, ticket) == "issued"


# --- the public address ----------------------------------------------------------------------------------------------


async def behind(api: Api, public_url: str | None, **client: Any) -> httpx.AsyncClient:
    service = dataclasses.replace(api.service, public_url=public_url)
    return httpx.AsyncClient(transport=httpx.ASGITransport(build_app(service)), **client)


async def test_behind_a_proxy_addresses_say_https_and_keep_its_path(api: Api) -> None:
    public = "https://api.example.org/voice"
    async with await behind(api, public, base_url="http://10.0.0.7:8000") as api.client:
        ticket = await ticket_of(api)
        assert ticket["upload_url"].startswith(f"{public}/files/uploads/upl_")
        # The proxy cuts its path off.
        inside = ticket["upload_url"].removeprefix(public)
        assert (await api.client.put(inside, content=SOUND, headers=WEBM)).status_code == 200


async def test_without_one_addresses_are_those_of_the_request(api: Api) -> None:
    async with await behind(api, None, base_url="http://10.0.0.7:8000") as api.client:
        assert (await ticket_of(api))["upload_url"].startswith("http://10.0.0.7:8000/files/uploads/upl_")


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        ("https://api.example.org", "https://api.example.org"),
        ("https://api.example.org/", "https://api.example.org"),
        ("https://api.example.org/voice/", "https://api.example.org/voice"),
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("https://[::1]:8443/a/b", "https://[::1]:8443/a/b"),
    ],
)
def test_public_addresses(told: str, kept: str) -> None:
    assert public_address(told) == kept


@pytest.mark.parametrize(
    "told",
    [
        *("", "api.example.org", "//api.example.org", "ftp://api.example.org", "https://", "https:///voice"),
        *("https://a.org?x=1", "https://a.org/?", "https://a.org/#x", "https://me:secret@a.org", "https://a.org:port"),
        *("https://a b.org", "https://a.org/\n", "https://a.org/\x00", "https://ä.org", "https://a.org\\b"),
    ],
)
def test_what_is_no_public_address(told: str) -> None:
    with pytest.raises(ValueError, match="not a public address"):
        public_address(told)


def test_the_environment_comes_before_the_config_file(monkeypatch: pytest.MonkeyPatch) -> None:
    from pydantic import ValidationError

    from deployments.ingress.deployment import IngressArgs

    monkeypatch.delenv("PARLANCE_PUBLIC_URL", raising=False)
    assert IngressArgs().reached_at() is None
    told = IngressArgs(public_url="https://file.example.org/")
    assert told.reached_at() == "https://file.example.org"
    monkeypatch.setenv("PARLANCE_PUBLIC_URL", "https://environment.example.org/voice/")
    assert told.reached_at() == "https://environment.example.org/voice"
    monkeypatch.setenv("PARLANCE_PUBLIC_URL", "environment")
    with pytest.raises(ValueError, match="not a public address"):
        told.reached_at()
    with pytest.raises(ValidationError, match="not a public address"):
        IngressArgs(public_url="file.example.org")


# --- an S3 store -----------------------------------------------------------------------------------------------------


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    with run_bucket() as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
        yield server


@pytest.fixture
async def s3(bucket: Bucket, tmp_path: Path) -> AsyncIterator[Api]:
    state = await open_state(tmp_path, blobs_url="s3://store/some/prefix")
    catalog = behaving(obedient=chat("obedient"))
    service = Service(catalog, {m.deployment: LocalEngine(m) for m in catalog.deployed()}, state)
    transport = httpx.ASGITransport(build_app(service), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        api = Api(service, client)
        await api.organisation("acme")
        api.everything = await api.key(*Scope)
        yield api
    await state.close()


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
