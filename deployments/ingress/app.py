"""The HTTP app: every route at `/v1` and at `/`, one error shape for each wire, an OpenAPI document that is true."""

from __future__ import annotations

from functools import partial

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Match, Route

from contract.errors import INVALID_REQUEST, METHOD_NOT_ALLOWED, NOT_FOUND, ApiError
from deployments.ingress.admission import MARK
from deployments.ingress.middleware import TraceMiddleware, trace_of
from deployments.ingress.openapi import document
from deployments.ingress.routes import (
    chat,
    completions,
    decisions,
    designs,
    embeddings,
    files,
    health,
    images,
    mcp,
    me,
    messages,
    models,
    rerank,
    speech,
    tokens,
    transcription,
    uploads,
    voices,
)
from deployments.ingress.service import Service

ROUTERS = (
    chat.router,
    completions.router,
    tokens.router,
