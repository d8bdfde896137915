"""GET /models and /models/{id}. Spec 2 (Model) and 4."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import JSONResponse, Response

from contract.catalog import Model
from contract.errors import MODEL_NOT_FOUND
from contract.models import ModelList, ModelObject, describe, listing
from deployments.ingress.front.admission import Admitted, admit
from deployments.ingress.context import RequestContext
from deployments.ingress.wire.openapi import documented

router = APIRouter(tags=["service"])

AnyKey = Annotated[Admitted, Depends(admit(None, takes_api_key_header=True))]


@router.get("/models", openapi_extra=documented(None, ModelList, takes_api_key_header=True))
async def list_models(admitted: AnyKey) -> Response:
    """List the models that your organisation can use."""
    return JSONResponse(listing(_listed(admitted.context)))


@router.get("/models/{model_id:path}", openapi_extra=documented(None, ModelObject, takes_api_key_header=True))
async def get_model(admitted: AnyKey, model_id: str) -> Response:
    """Describe one model."""
    for model in _listed(admitted.context):
        if model.id == model_id:
            return JSONResponse(describe(model))
    raise MODEL_NOT_FOUND(f"there is no model `{model_id[:100]}` here", param="model")


def _listed(context: RequestContext) -> list[Model]:
    models = {model.id: model for model in context.service.catalog.models() if model.is_listed}
    return context.offered(models)
