"""GET /healthz: whether the server lives. No key."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from deployments.ingress.front.middleware import trace_of
from deployments.ingress.wire.openapi import documented

open_router = APIRouter(tags=["service"])


class HealthReply(TypedDict):
    """The ingress serves; running replicas by engine. Zero is healthy."""

    status: Literal["ok"]
    replicas: dict[str, int]


@open_router.get("/healthz", openapi_extra=documented(None, HealthReply, keyed=False))
async def healthz(request: Request) -> Response:
    """Answer 200 once the ingress serves, with the number of running replicas of each engine."""
    engines = trace_of(request).service.engines
    health: HealthReply = {"status": "ok", "replicas": {name: engine.running() for name, engine in engines.items()}}
    return JSONResponse(health)
