"""The HTTP app: every route at `/v1` and at `/`, one error shape for each wire, an OpenAPI document that is true."""

from __future__ import annotations

import inspect
from functools import partial

from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute, APIWebSocketRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Match, Route

from contract import VERSION
from contract.errors import INVALID_REQUEST, METHOD_NOT_ALLOWED, NOT_FOUND, ApiError
from deployments.ingress.context import Service, exchange_of
from deployments.ingress.front.admission import MARK
from deployments.ingress.front.middleware import ExchangeMiddleware, FastRoutes, Row, refusal
from deployments.ingress.routes import (
    chat,
    console,
    decisions,
    designs,
    embeddings,
    files,
    mcp,
    messages,
    realtime,
    rerank,
    responses,
    speech,
    transcription,
    voices,
)
from deployments.ingress.routes import service as service_routes
from deployments.ingress.wire import openapi

ROUTERS = (
    chat.router,
    responses.router,
    messages.router,
    chat.tokens_router,
    embeddings.router,
    rerank.router,
    speech.router,
    transcription.router,
    realtime.router,
    files.router,
    voices.router,
    designs.router,
    decisions.router,
    service_routes.images_router,
    mcp.router,
    service_routes.router,
)
VERSIONED_ROUTERS = (rerank.versioned_router,)
"""Routers with paths that name the version of another API. With `/v1` in front they answer as well."""
OPEN_ROUTERS = (voices.open_router, mcp.open_router)
"""Routers of the API without a key. Nothing else may be without admission."""
UNVERSIONED = (service_routes.open_router, files.open_router)
"""The same, at one path only."""


def build_app(service: Service, *, has_console: bool = True, has_live: bool = True) -> FastAPI:
    """The whole HTTP contract over a service, without the routes that are not wanted; needs no Ray."""
    app = FastAPI(
        title="Parlance",
        version=VERSION,
        description="Speech, language and decisions behind one key. Paths work with and without `/v1`. `null` for a "
        "field that may be left out means that it is left out.",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        # A redirect would name the Host header that came, have no Error body, and come before the key is checked.
        redirect_slashes=False,
    )
    routers = [router for router in ROUTERS if has_live or router is not realtime.router]
    for router in (*routers, *OPEN_ROUTERS, *([console.router] if has_console else [])):
        app.include_router(router, prefix="/v1")
        app.include_router(router, include_in_schema=False)
    for router in VERSIONED_ROUTERS:
        app.include_router(router)
        app.include_router(router, prefix="/v1", include_in_schema=False)
    for router in (*UNVERSIONED, *([console.open_router] if has_console else [])):
        app.include_router(router)
    check_routes(app)
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_middleware(FastRoutes, table=fast_routes(app))
    app.add_middleware(ExchangeMiddleware, service=service)
    app.openapi = partial(openapi.document, app)  # type: ignore[method-assign]  # FastAPI's documented way
    return app


def fast_routes(app: FastAPI) -> dict[tuple[str, str], Row]:
    """The table of the routes that need nothing of FastAPI but one admission. It is made of the routes themselves."""
    return {
        (method, route.path): (dependency.call, route.endpoint, dependency.name or "")
        for route in app.routes
        if isinstance(route, APIRoute) and (dependency := only_admission(route)) and dependency.call
        for method in route.methods
    }


def only_admission(route: APIRoute) -> Dependant | None:
    """The admission of a route that takes nothing else and makes its whole reply itself; None for other routes."""
    signature = inspect.signature(route.endpoint, eval_str=True)
    if len(signature.parameters) != 1 or signature.return_annotation is not Response:
        return None
    return next((each for each in route.dependant.dependencies if hasattr(each.call, MARK)), None)


def check_routes(app: FastAPI) -> None:
    """Raises RuntimeError if a route of any kind declares no admission and is not in an open router."""
    unkeyed = {
        route.endpoint
        for router in (*OPEN_ROUTERS, *UNVERSIONED, console.open_router)
        for route in router.routes
        if isinstance(route, APIRoute)
    }
    for route in app.routes:
        path, endpoint = getattr(route, "path", ""), getattr(route, "endpoint", None)
        is_admitting = isinstance(route, APIRoute | APIWebSocketRoute) and any(
            hasattr(dependency.call, MARK) for dependency in route.dependant.dependencies
        )
        if endpoint not in unkeyed and not is_admitting:
            raise RuntimeError(f"{path} declares no scope; add Depends(admit(...)) or make it open")


def _api_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ApiError)
    return refusal(exchange_of(request.scope), error)


def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        fault = METHOD_NOT_ALLOWED(f"{request.scope['path']} does not support {request.method}")
        reply = refusal(exchange_of(request.scope), fault)
        # Methods of all routes at this path; Starlette names those of the first.
        here = [route for route in request.app.routes if isinstance(route, Route)]
        allowed = [route.methods or () for route in here if route.matches(request.scope)[0] is not Match.NONE]
        reply.headers["allow"] = ", ".join(sorted({method for methods in allowed for method in methods}))
        return reply
    if error.status_code == 404:
        accepts_page = "text/html" in request.headers.get("accept", "") and request.method in ("GET", "HEAD")
        if request.scope["path"] == "/" and accepts_page and exchange_of(request.scope).service.console:
            # A browser asks for the bare address.
            return RedirectResponse("console/", headers={"vary": "accept"})
        return _api_error(request, NOT_FOUND(f"there is nothing at {request.scope['path'][:200]}"))
    return _api_error(request, INVALID_REQUEST(str(error.detail)))


def _validation_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"][1:])
    return _api_error(request, INVALID_REQUEST(f"`{field}`: {first['msg']}", param=field))
