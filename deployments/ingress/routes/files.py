"""Bytes behind signed addresses: samples of an organisation's voices; uploads come here too. Design 7.7.

An S3 store serves its own bytes, under addresses that it signs itself; a folder is served here.
"""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from contract.errors import NOT_FOUND
from contract.speech.request import MEDIA_TYPES
from deployments.ingress.middleware import trace_of
from deployments.ingress.openapi import documented_audio
from deployments.ingress.streams import Stream

open_router = APIRouter(tags=["files"])
"""The signature is the key."""


@open_router.get("/files/{name:path}", openapi_extra=documented_audio(None, keyed=False))
async def download(request: Request, name: str) -> Response:
    """Download what a signed address names."""
    state = trace_of(request).service.state
    state.signatures.verify(name, request.url.query, "GET")
    blob = await state.blobs.stream(name)
    if blob is None:
        raise NOT_FOUND("what this address named has been deleted")
    headers = {"content-length": str(blob.size_bytes), "cache-control": "private", "x-content-type-options": "nosniff"}
    return Stream(blob.chunks, _media_type(name), headers)


def _media_type(name: str) -> str:
    suffix = name.rpartition(".")[2]
    return next((media for kind, media in MEDIA_TYPES.items() if kind == suffix), "application/octet-stream")
