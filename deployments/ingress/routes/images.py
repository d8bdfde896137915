"""POST /images/generations: planned, not available. Spec 1; design 7.10."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import Response

from contract.errors import NOT_IMPLEMENTED
from deployments.ingress.front.admission import Admitted, admit
from deployments.ingress.wire.openapi import not_available

router = APIRouter(tags=["images"])


@router.post("/images/generations", openapi_extra=not_available())
async def generate(_: Annotated[Admitted, Depends(admit(None))]) -> Response:
    """Not available yet: answers 501 `not_implemented`."""
    raise NOT_IMPLEMENTED("images cannot be generated here yet")
