"""The service itself: GET /healthz, /openapi.json, /me, /me/usage, /models; POST /images/generations, which it lacks.

GET /docs/ shows the documentation where the site was built: `make docs` in the checkout that runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles
from typing_extensions import TypedDict

from autoscaling.engine import Engine
from contract import VERSION
from contract.access import MeReply, Scope
from contract.catalog import Model
from contract.errors import MODEL_NOT_FOUND, NOT_FOUND, NOT_IMPLEMENTED
from contract.limits import KEYLESS_BODY_BYTES
from contract.models import ModelList, ModelLoad, ModelObject, describe, listing
from contract.usage import PARAMETERS, UsageQuery, UsageReply, cursor_after
from deployments.ingress.context import RequestContext, exchange_of
from deployments.ingress.front.admission import Admitted, AnyKey, admit, admit_anyone, authenticated
from deployments.ingress.wire.openapi import documented, not_available, written
from state.billing.usage import iso

router = APIRouter(tags=["service"])
images_router = APIRouter(tags=["images"])
open_router = APIRouter(tags=["service"])
"""Routes that need no key."""

SITE = StaticFiles(directory=Path(__file__).resolve().parents[3] / "var/site", check_dir=False)
SITE_HEADERS = {
    "cache-control": "max-age=300",
    "content-security-policy": "frame-ancestors 'none'",  # what a page may load stands in the page
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}

EitherHeader = Annotated[Admitted, Depends(admit(None, takes_api_key_header=True))]


class HealthReply(TypedDict):
    """The ingress serves. `version` is that of Parlance; `replicas` run, by engine: none are named without a key."""

    status: Literal["ok"]
    version: str
    replicas: dict[str, int]


@open_router.get("/healthz", openapi_extra=documented(None, HealthReply, keyed=False))
async def healthz(request: Request) -> Response:
    """Answer 200 once the ingress serves; for a valid key with the number of running replicas of each engine."""
    engines: Mapping[str, Engine] = {}
    if authorization := request.headers.get("authorization"):
        await authenticated(request, authorization)
        engines = exchange_of(request.scope).service.engines
    replicas = {name: engine.running() for name, engine in engines.items()}
    health: HealthReply = {"status": "ok", "version": VERSION, "replicas": replicas}
    return JSONResponse(health)


@open_router.api_route("/openapi.json", methods=["GET", "HEAD"], include_in_schema=False)
async def show_document(request: Request) -> Response:
    """Show the OpenAPI document."""
    await admit_anyone(request, KEYLESS_BODY_BYTES)
    return Response(written(request.app), media_type="application/json")


@open_router.api_route("/docs", methods=["GET", "HEAD"], include_in_schema=False)
async def lead_to_site(request: Request) -> Response:
    """Lead to the first page, without a word of the Host header."""
    await admit_anyone(request, KEYLESS_BODY_BYTES)
    return RedirectResponse("/docs/")


@open_router.api_route("/docs/{path:path}", methods=["GET", "HEAD"], include_in_schema=False)
async def show_site(request: Request, path: str) -> Response:
    """Show a file of the documentation."""
    await admit_anyone(request, KEYLESS_BODY_BYTES)
    if not SITE.lookup_path("index.html")[1]:
        raise NOT_FOUND("the documentation has not been built here; `make docs` does it")
    name = path + "index.html" if request.scope["path"].endswith("/") else path
    response = await SITE.get_response(name, request.scope)
    response.headers.update(SITE_HEADERS)
    return response


@router.get("/me", openapi_extra=documented(None, MeReply))
async def me(admitted: AnyKey) -> Response:
    """Describe what your key may do, its plan, limits and spending."""
    caller = admitted.context.caller
    account = await admitted.context.service.state.accounts.describe(caller)
    scopes = [{"scope": scope.value, "granted": scope in caller.scopes} for scope in Scope]
    return JSONResponse({"object": "me", "scopes": scopes, **account})


@router.get("/me/usage", openapi_extra=documented(None, UsageReply, parameters=PARAMETERS))
async def my_usage(admitted: AnyKey) -> Response:
    """Show what the user of your key was billed, or your organisation if it has none: by day (UTC) and model."""
    caller, state = admitted.context.caller, admitted.context.service.state
    query = UsageQuery.read(admitted.request.query_params, state.clock())
    page = await state.usage.page(caller, query)
    reply: UsageReply = {
        "object": "list",
        "organisation": caller.org,
        "user": caller.user,
        "since": iso(query.since_ms),
        "until": iso(query.until_ms),
        "time_zone": "UTC",
        "data": page.rows,
        "total_cost_micro_eur": page.total_cost_micro_eur,
        "has_more": page.has_more,
        "next_cursor": cursor_after(page.rows[-1]) if page.has_more else None,
        "spend": (await state.accounts.describe(caller))["spend"],
    }
    return JSONResponse(reply)


@router.get("/models", openapi_extra=documented(None, ModelList, takes_api_key_header=True))
async def list_models(admitted: EitherHeader) -> Response:
    """List the models that your organisation can use."""
    context = admitted.context
    return JSONResponse(listing([describe(model, _load(context, model)) for model in _listed(context)]))


@router.get("/models/{model_id:path}", openapi_extra=documented(None, ModelObject, takes_api_key_header=True))
async def get_model(admitted: EitherHeader, model_id: str) -> Response:
    """Describe one model."""
    for model in _listed(admitted.context):
        if model.id == model_id:
            return JSONResponse(describe(model, _load(admitted.context, model)))
    raise MODEL_NOT_FOUND(f"there is no model `{model_id[:100]}` here", param="model")


def _listed(context: RequestContext) -> list[Model]:
    models = {model.id: model for model in context.service.catalog.models() if model.is_listed}
    return context.offered(models)


def _load(context: RequestContext, model: Model) -> ModelLoad:
    view = context.engine(model).view()
    expected_s, p90_s = (round(view.loads.quantile(share), 1) for share in (0.5, 0.9))
    return {"state": view.state, "expected_s": expected_s, "p90_s": p90_s}


@images_router.post("/images/generations", openapi_extra=not_available())
async def generate(_: AnyKey) -> Response:
    """Not available yet: answers 501 `not_implemented`."""
    raise NOT_IMPLEMENTED("this server does not generate images yet")
