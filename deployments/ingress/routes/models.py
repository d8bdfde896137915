"""GET /models and /models/{id}. Spec 2 (Model) and 4."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import JSONResponse, Response

from contract.catalog import Model
from contract.errors import MODEL_NOT_FOUND
from contract.models import ModelList, ModelObject, describe
from deployments.ingress.admission import Admitted, admit
from deployments.ingress.context import RequestContext
from deployments.ingress.openapi import documented

router = APIRouter(tags=["service"])

AnyKey = Annotated[Admitted, Depends(admit(None))]


@router.get("/models", openapi_extra=documented(None, ModelList))
async def list_models(admitted: AnyKey) -> Response:
    """List the models that your organisation can use."""
    listed: ModelList = {"object": "list", "data": [describe(model) for model in _listed(admitted.context)]}
    return JSONResponse(listed)


@router.get("/models/{model_id:path}", openapi_extra=documented(None, ModelObject))
async def get_model(admitted: AnyKey, model_id: str) -> Response:
    """Describe one model."""
    for model in _listed(admitted.context):
        if model.id == model_id:
            return JSONResponse(describe(model))
    raise MODEL_NOT_FOUND(f"there is no model `{model_id[:100]}` here", param="model")


def _listed(context: RequestContext) -> list[Model]:
    models = {model.id: model for model in context.service.catalog.models() if model.is_listed}
    return context.offered(models)
