"""POST /audio/uploads: tickets for large recordings. Spec 2 (Upload ticket) and 4."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import JSONResponse, Response

from contract.access import Scope
from contract.limits import UPLOAD_BYTES
from contract.transcription.uploads import UploadRequest, UploadTicket
from deployments.ingress.wire.addresses import own_address, signature_of
from deployments.ingress.front.admission import Admitted, admit
from deployments.ingress.flows.uploads import issue
from deployments.ingress.money.idempotency import ACCEPTS_KEY, once
from deployments.ingress.wire.openapi import documented

router = APIRouter(tags=["transcription"])

Transcribing = Annotated[Admitted, Depends(admit(Scope.TRANSCRIBE))]


@router.post("/audio/uploads", openapi_extra=documented(UploadRequest, UploadTicket, **ACCEPTS_KEY))
async def create_upload(admitted: Transcribing) -> Response:
    """Get a ticket: PUT a recording of up to 100 MiB to its address, then transcribe it by `upload_id`."""
    request = await admitted.body(UploadRequest)
    return await once(admitted, partial(_answer, admitted, request))


async def _answer(admitted: Admitted, request: UploadRequest) -> Response:
    ticket = await issue(admitted.context, request)
    address = own_address(admitted.request, ticket.name, ticket.expires_at, "PUT")
    body: UploadTicket = {
        "upload_id": ticket.id,
        "upload_url": address,
        "token": signature_of(address),
        "content_type": ticket.content_type,
        "max_bytes": UPLOAD_BYTES,
    }
    return JSONResponse(body)
