"""POST /audio/uploads, and PUT /files, where one request is enough; orders of them: tests/state/test_tickets.py."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from contract.limits import UPLOAD_BYTES
from contract.transcription.uploads import RECORDING_TYPES
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
)


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


async def test_every_type_of_the_spec_is_taken(api: Api) -> None:
    for mime in RECORDING_TYPES:
        assert (await ticket_of(api, mime=f"{mime.upper()}; codecs=opus"))["content_type"] == mime


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


# --- PUT --------------------------------------------------------------------------------------------------------------


async def test_a_declared_length_is_refused_before_the_body_is_read(api: Api) -> None:
    ticket = await ticket_of(api)
    read = 0

    async def counted() -> AsyncIterator[bytes]:
        nonlocal read
        read += 1
        yield SOUND

    assert await put_raw(api, ticket, counted(), (b"content-length", b"%d" % (len(SOUND) + 1))) == 413
    assert read == 0


@pytest.mark.parametrize("is_declared", [True, False])
@pytest.mark.parametrize(("more", "status"), [(-1, 200), (0, 200), (1, 413)])
async def test_413_a_body_longer_than_its_ticket(api: Api, more: int, status: int, is_declared: bool) -> None:
    ticket, sound = await ticket_of(api, len(SOUND)), (SOUND + b"x")[: len(SOUND) + more]
    reply = await put(api, ticket, sound if is_declared else in_pieces(sound[:5], sound[5:]))
    assert (reply.status_code, await state_of(api, ticket)) == (status, "uploaded" if status == 200 else "issued")


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


async def test_409_a_second_put(api: Api, tmp_path: Path) -> None:
    ticket = await ticket_of(api)
    await put(api, ticket)
    reply = await put(api, ticket, b"another sound")
    refused(reply, 409, "already_uploaded")
    assert reply.headers["x-should-retry"] == "false"
    assert [path.read_bytes() for path in stored(tmp_path)] == [SOUND]


# --- transcriptions of uploaded recordings ----------------------------------------------------------------------------


async def test_what_was_uploaded_cannot_be_downloaded(api: Api) -> None:
    ticket = await ticket_of(api)
    await put(api, ticket)
    found = await api.state.tickets.find(ticket["upload_id"])
    assert found is not None
    query = ticket["upload_url"].partition("?")[2]
    for name in (found.name, found.blob):
        refused(await api.client.get(f"/files/{name}?{query}"), 403, "invalid_signature")
    assert (await api.client.head(ticket["upload_url"])).status_code == 405
