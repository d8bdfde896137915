"""POST /audio/uploads, and PUT /files: every row of the spec's tables of upload tickets, over the real app."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from contract.access import Scope
from contract.errors import ApiError
from contract.limits import OPEN_UPLOADS, UPLOAD_BYTES, UPLOAD_S
from contract.transcription.uploads import RECORDING_TYPES
from state.blobs.signatures import FILES_PURPOSE, Signatures
from tests.api.conftest import Api, refused
from tests.api.uploads import (
    PATH,
    SOUND,
    WEBM,
    in_pieces,
    put,
    put_raw,
    state_of,
    stored,
    ticket_of,
    transcribe,
)


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


async def test_every_type_of_the_spec_is_taken(api: Api) -> None:
    for mime in RECORDING_TYPES:
        assert (await ticket_of(api, mime=f"{mime.upper()}; codecs=opus"))["content_type"] == mime


@pytest.mark.parametrize("mime", ["", "audio/x-wav", "video/webm", "audio/webm\0", "*/*"])
async def test_415_mime_not_allowed(api: Api, mime: str) -> None:
    # Also where the size is wrong as well: the type comes first.
    for size in (1, UPLOAD_BYTES + 1):
        reply = await api.send("POST", PATH, json={"mime": mime, "size": size})
        refused(reply, 415, "unsupported_media_type", "mime", "audio/flac")
    assert await api.state.tickets.find("upl_" + "a" * 26) is None


@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        ({"mime": "audio/webm", "size": UPLOAD_BYTES + 1}, 413, "request_too_large", "size"),
        ({"mime": "audio/webm", "size": 0}, 400, "invalid_request_error", "size"),
        ({"mime": "audio/webm", "size": "1"}, 400, "invalid_request_error", "size"),
        ({"mime": "audio/webm"}, 400, "invalid_request_error", "size"),
        ({"size": 1}, 400, "invalid_request_error", "mime"),
    ],
)
async def test_what_is_no_request_for_a_ticket(
    api: Api, body: dict[str, Any], status: int, code: str, param: str
) -> None:
    """All sizes: tests/contract/test_transcription.py."""
    refused(await api.send("POST", PATH, json=body), status, code, param)


async def test_503_where_no_transcription_is_set_up(api: Api) -> None:
    bare = api.without(*api.service.catalog.transcription)
    refused(await bare.send("POST", PATH, json={"mime": "audio/webm", "size": 1}), 503, "not_configured")
    # What could never succeed says so first.
    refused(await bare.send("POST", PATH, json={"mime": "x", "size": 1}), 415, "unsupported_media_type", "mime")


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


# --- PUT --------------------------------------------------------------------------------------------------------------


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
    refused(await api.send("PUT", bare, content=SOUND, headers=WEBM), 403, "invalid_signature")
    assert (await put(api, ticket)).status_code == 200


@pytest.mark.parametrize(("size", "status"), [(len(SOUND) - 1, 413), (len(SOUND), 200), (len(SOUND) + 1, 200)])
@pytest.mark.parametrize("declared", [True, False])
async def test_413_longer_than_the_ticket(api: Api, tmp_path: Path, size: int, status: int, declared: bool) -> None:
    ticket = await ticket_of(api, size)
    reply = await put(api, ticket, SOUND if declared else in_pieces(SOUND[:5], SOUND[5:]))
    assert reply.status_code == status
    if status == 413:
        refused(reply, 413, "request_too_large", says=str(size))
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
    refused(reply, 415, "unsupported_media_type", says="content-type: audio/webm")
    assert await state_of(api, ticket) == "issued"
    assert stored(tmp_path) == []


async def test_parameters_of_a_content_type_do_not_matter(api: Api) -> None:
    reply = await put(api, await ticket_of(api), **{"content-type": "Audio/WebM;codecs=opus"})
    assert reply.status_code == 200


async def test_415_compressed_on_the_way(api: Api) -> None:
    refused(await put(api, await ticket_of(api), **{"content-encoding": "gzip"}), 415, "unsupported_media_type")


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
        refused(await api.client.put(wrong, content=SOUND, headers=WEBM), 403, "invalid_signature")
    assert [await state_of(api, each) for each in (ticket, other)] == ["issued", "issued"]


@pytest.mark.parametrize(("left_s", "status"), [(-1, 403), (0, 403), (3600, 200)])
async def test_403_an_expired_address(api: Api, left_s: int, status: int) -> None:
    ticket = await ticket_of(api)
    found = await api.state.tickets.find(ticket["upload_id"])
    assert found is not None
    query = api.state.signatures.sign(found.name, int(api.state.clock()) + left_s, "PUT")
    reply = await api.client.put(f"/files/{found.name}?{query}", content=SOUND, headers=WEBM)
    assert reply.status_code == status
    if status == 403:
        refused(reply, 403, "invalid_signature", says="expired")


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


# --- transcriptions of uploaded recordings ----------------------------------------------------------------------------


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
    refused(await transcribe(api, ticket), 404, "not_found", says="nothing was uploaded")
    assert await state_of(api, ticket) == "consumed"
    refused(await put(api, ticket), 404, "not_found")


async def test_404_a_ticket_of_another_organisation(api: Api) -> None:
    await api.organisation("other")
    ticket = await ticket_of(api)
    await put(api, ticket)
    foreign = refused(await transcribe(api, ticket, await api.key(*Scope, org="other")), 404, "not_found")
    unknown = refused(await transcribe(api, {"upload_id": f"upl_{'a' * 26}"}), 404, "not_found")
    assert foreign["message"].replace(ticket["upload_id"], "") == unknown["message"].replace(f"upl_{'a' * 26}", "")
    assert (await transcribe(api, ticket)).status_code == 200


async def test_of_50_transcriptions_at_once_exactly_one_runs(api: Api) -> None:
    ticket = await ticket_of(api)
    await put(api, ticket)
    replies = await asyncio.gather(*(transcribe(api, ticket) for _ in range(50)))
    statuses = sorted(reply.status_code for reply in replies)
    assert statuses == [200, *[404] * 49]
    assert len(await api.usage()) == 1


# --- what an address is not for ---------------------------------------------------------------------------------------


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
