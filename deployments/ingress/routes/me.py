"""GET /me. Spec 4 and 5."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import JSONResponse, Response

from contract.access import MeReply, Scope
from deployments.ingress.front.admission import Admitted, admit
from deployments.ingress.wire.openapi import documented

router = APIRouter(tags=["service"])


@router.get("/me", openapi_extra=documented(None, MeReply))
async def me(admitted: Annotated[Admitted, Depends(admit(None))]) -> Response:
    """Describe what your key may do, its plan, limits and spending."""
    caller = admitted.context.caller
    account = await admitted.context.service.state.accounts.describe(caller)
    scopes = [{"scope": scope.value, "granted": scope in caller.scopes} for scope in Scope]
    return JSONResponse({"object": "me", "scopes": scopes, **account})
