"""GET /openapi.json: the document of all routes. No key."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from contract.limits import KEYLESS_BODY_BYTES
from deployments.ingress.front.admission import admit_anyone
from deployments.ingress.wire.openapi import written

open_router = APIRouter()


@open_router.api_route("/openapi.json", methods=["GET", "HEAD"], include_in_schema=False)
async def show_document(request: Request) -> Response:
    """Show the OpenAPI document."""
    await admit_anyone(request, KEYLESS_BODY_BYTES)
    return Response(written(request.app), media_type="application/json")
