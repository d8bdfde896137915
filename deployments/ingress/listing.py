"""GET /models, /models/{id}, /me, /healthz. Spec 4 and 5."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from contract.access import Scope
from contract.catalog import ChatModel, EmbeddingModel, Model
from contract.errors import MODEL_NOT_FOUND
from contract.replies import HealthReply, MeReply, ModelListReply, ModelReply
from deployments.ingress.admission import Admitted, admit
from deployments.ingress.exchange import exchange_of
from deployments.ingress.openapi import documented

router = APIRouter(tags=["service"])
open_router = APIRouter(tags=["service"])
"""Routes without a key."""

AnyKey = Annotated[Admitted, Depends(admit(None))]


@router.get("/models", openapi_extra=documented(None, ModelListReply))
async def list_models(admitted: AnyKey) -> Response:
    """List the models that your organisation can use."""
    return JSONResponse({"object": "list", "data": [describe(model) for model in _listed(admitted)]})


@router.get("/models/{model_id:path}", openapi_extra=documented(None, ModelReply))
async def get_model(admitted: AnyKey, model_id: str) -> Response:
    """Describe one model."""
    for model in _listed(admitted):
        if model.id == model_id:
            return JSONResponse(describe(model))
    raise MODEL_NOT_FOUND(f"there is no model `{model_id[:100]}` here", param="model")


@router.get("/me", openapi_extra=documented(None, MeReply))
async def me(admitted: AnyKey) -> Response:
    """Describe what your key may do, its plan, limits and spending."""
    caller = admitted.caller
    about = await admitted.service.state.accounts.describe(caller)
    scopes = [{"scope": scope.value, "granted": scope in caller.scopes} for scope in Scope]
    return JSONResponse({"object": "me", "scopes": scopes, **about})


@open_router.get("/healthz", openapi_extra=documented(None, HealthReply, keyed=False))
async def healthz(request: Request) -> Response:
    """Answer 200 once the ingress serves, with the number of running replicas of each engine."""
    engines = exchange_of(request).service.engines
    return JSONResponse({"status": "ok", "replicas": {name: engine.running() for name, engine in engines.items()}})


def describe(model: Model) -> dict[str, Any]:
    """The Model object of the spec, with `created` and the `runtime` that answers here."""
    public: dict[str, Any] = {
        "id": model.id,
        "object": "model",
        "created": model.created,
        "owned_by": model.owned_by,
        "kind": model.kind,
        "display_name": model.display_name,
        "description": model.description,
        "license": model.license,
        "runtime": model.serving.runtime if model.serving else None,
    }
    if isinstance(model, ChatModel):
        public |= {"tier": model.tier, "context_window": model.context_window, "vision": model.vision}
    if isinstance(model, EmbeddingModel):
        public |= {"dimensions": model.dimensions, "context_window": model.context_window}
    return {key: value for key, value in public.items() if value is not None}


def _listed(admitted: Admitted) -> list[Model]:
    """Decision models have a list of their own."""
    catalog = admitted.service.catalog
    kinds = (catalog.chat, catalog.embeddings, catalog.rerank, catalog.speech, catalog.transcription)
    return [model for models in kinds for model in admitted.service.offered(models, admitted.caller)]
