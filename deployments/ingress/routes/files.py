"""Files: POST /audio/uploads gives a ticket for a recording; GET and PUT /files/... serve bytes at signed addresses.

An S3 store serves its own bytes, under addresses that it signs itself; a folder is served here. Recordings come here
for either store: no address of a store could see to it that a client sends one file, of the type and length it said.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from contract.access import Scope
from contract.errors import NOT_FOUND
from contract.limits import UPLOAD_BYTES
from contract.speech.request import MEDIA_TYPES
from contract.transcription.uploads import RECORDING_TYPES, UploadRequest, UploadTicket
from deployments.ingress.context import exchange_of
from deployments.ingress.flows.uploads import issue, need_open, nothing_came, refuse_closed, store, too_long
from deployments.ingress.front.admission import Admitted, admit, refuse_other_media, require_media
from deployments.ingress.front.bodies import pieces, watched, with_stall_limit
from deployments.ingress.wire.addresses import own_address
from deployments.ingress.wire.idempotency import ACCEPTS_KEY, once
from deployments.ingress.wire.openapi import documented, documented_audio
from deployments.ingress.wire.replies import StreamedReply
from state.tickets import Ticket

router = APIRouter(tags=["transcription"])
open_router = APIRouter(tags=["files"])
"""The signature is the key."""

IDLE_S = 60.0
"""Seconds without a byte after which a recording is given up."""

TICKET_POLL_S = 5.0
"""Seconds between looks at the ticket of an upload, which another process may have used."""

Transcribing = Annotated[Admitted, Depends(admit(Scope.TRANSCRIBE))]

RECORDING: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {kind: {"schema": {"type": "string", "format": "binary"}} for kind in RECORDING_TYPES},
    }
}


class Uploaded(TypedDict):
    """The recording is stored; `size` in bytes."""

    upload_id: str
    size: int


@router.post("/audio/uploads", openapi_extra=documented(UploadRequest, UploadTicket, **ACCEPTS_KEY))
async def create_upload(admitted: Transcribing) -> Response:
    """Get a ticket: PUT a recording of up to 100 MiB to its address, then transcribe it by `upload_id`."""
    request = await admitted.body(UploadRequest)
    request.check()
    return await once(admitted, partial(_ticket, admitted, request))


async def _ticket(admitted: Admitted, request: UploadRequest) -> Response:
    ticket = await issue(admitted.context, request)
    address = own_address(admitted.request, ticket.name, ticket.expires_at, "PUT")
    body: UploadTicket = {
        "upload_id": ticket.id,
        "upload_url": address,
        "token": address.rpartition("=")[2],  # its signature
        "content_type": ticket.content_type,
        "max_bytes": UPLOAD_BYTES,
    }
    return JSONResponse(body)


@open_router.get("/files/{name:path}", openapi_extra=documented_audio(None, keyed=False))
async def download(request: Request, name: str) -> Response:
    """Download what a signed address names."""
    state = exchange_of(request.scope).service.state
    state.signatures.verify(name, _query(request), "GET")
    blob = await state.blobs.stream(name)
    if blob is None:
        raise NOT_FOUND("the file at this address has been deleted")
    headers = {"content-length": str(blob.size_bytes), "cache-control": "private", "x-content-type-options": "nosniff"}
    media_type = MEDIA_TYPES.get(name.rpartition(".")[2], "application/octet-stream")
    return StreamedReply(blob.chunks, headers=headers, media_type=media_type)


@open_router.put("/files/{name:path}", openapi_extra=documented(None, Uploaded, keyed=False, **RECORDING))
async def upload(request: Request, name: str) -> Response:
    """Upload the recording that a ticket is for, with the ticket's `content_type`, once."""
    service = exchange_of(request.scope).service
    service.state.signatures.verify(name, _query(request), "PUT")
    ticket = await service.state.tickets.find(name.rpartition("/")[2])
    if ticket is None or ticket.name != name:
        raise NOT_FOUND("this address belongs to no ticket, or its ticket has been deleted; get a new ticket")
    refuse_closed(ticket, service.state.clock())
    _check_headers(request, ticket)
    wanted = watched(request.receive, partial(need_open, service, ticket.id), TICKET_POLL_S)
    left_s = ticket.expires_at - service.state.clock()
    size = await store(service, ticket, with_stall_limit(pieces(Request(request.scope, wanted)), IDLE_S, left_s))
    return JSONResponse(Uploaded(upload_id=ticket.id, size=size))


def _check_headers(request: Request, ticket: Ticket) -> None:
    """Raises UNSUPPORTED_MEDIA_TYPE, REQUEST_TOO_LARGE and INVALID_REQUEST before any of the body is read."""
    require_media(request, ticket.content_type, hint=", as the ticket says")
    refuse_other_media(request)
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > ticket.size_bytes:
        raise too_long(ticket.size_bytes)
    if declared.isdecimal() and not int(declared):
        raise nothing_came()


def _query(request: Request) -> str:
    """The query as it came: `request.url` would break over bytes that are no UTF-8, of which no signature has any."""
    query: bytes = request.scope["query_string"]
    return query.decode("latin-1")
