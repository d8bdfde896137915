"""The service itself: GET /healthz, /openapi.json, /me, /models; and POST /images/generations, which it lacks."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from contract import VERSION
from contract.access import MeReply, Scope
from contract.catalog import Model
from contract.errors import MODEL_NOT_FOUND, NOT_IMPLEMENTED
from contract.limits import KEYLESS_BODY_BYTES
from contract.models import ModelList, ModelObject, describe, listing
from deployments.ingress.context import RequestContext, trace_of
from deployments.ingress.front.admission import Admitted, admit, admit_anyone
from deployments.ingress.wire.openapi import documented, not_available, written

router = APIRouter(tags=["service"])
images_router = APIRouter(tags=["images"])
open_router = APIRouter(tags=["service"])
"""Routes that need no key."""

AnyKey = Annotated[Admitted, Depends(admit(None))]
EitherHeader = Annotated[Admitted, Depends(admit(None, takes_api_key_header=True))]


class HealthReply(TypedDict):
    """The ingress serves. `version` is that of Parlance; `replicas` run, by engine, and zero is healthy."""

    status: Literal["ok"]
    version: str
    replicas: dict[str, int]


@open_router.get("/healthz", openapi_extra=documented(None, HealthReply, keyed=False))
async def healthz(request: Request) -> Response:
    """Answer 200 once the ingress serves, with the number of running replicas of each engine."""
    engines = trace_of(request).service.engines
    replicas = {name: engine.running() for name, engine in engines.items()}
    health: HealthReply = {"status": "ok", "version": VERSION, "replicas": replicas}
    return JSONResponse(health)


@open_router.api_route("/openapi.json", methods=["GET", "HEAD"], include_in_schema=False)
async def show_document(request: Request) -> Response:
    """Show the OpenAPI document."""
    await admit_anyone(request, KEYLESS_BODY_BYTES)
    return Response(written(request.app), media_type="application/json")


@router.get("/me", openapi_extra=documented(None, MeReply))
async def me(admitted: AnyKey) -> Response:
    """Describe what your key may do, its plan, limits and spending."""
    caller = admitted.context.caller
    account = await admitted.context.service.state.accounts.describe(caller)
    scopes = [{"scope": scope.value, "granted": scope in caller.scopes} for scope in Scope]
    return JSONResponse({"object": "me", "scopes": scopes, **account})


@router.get("/models", openapi_extra=documented(None, ModelList, takes_api_key_header=True))
async def list_models(admitted: EitherHeader) -> Response:
    """List the models that your organisation can use."""
    return JSONResponse(listing(_listed(admitted.context)))


@router.get("/models/{model_id:path}", openapi_extra=documented(None, ModelObject, takes_api_key_header=True))
async def get_model(admitted: EitherHeader, model_id: str) -> Response:
    """Describe one model."""
    for model in _listed(admitted.context):
        if model.id == model_id:
            return JSONResponse(describe(model))
    raise MODEL_NOT_FOUND(f"there is no model `{model_id[:100]}` here", param="model")


def _listed(context: RequestContext) -> list[Model]:
    models = {model.id: model for model in context.service.catalog.models() if model.is_listed}
    return context.offered(models)


@images_router.post("/images/generations", openapi_extra=not_available())
async def generate(_: AnyKey) -> Response:
    """Not available yet: answers 501 `not_implemented`."""
    raise NOT_IMPLEMENTED("this server does not generate images yet")
