"""POST /decisions, POST /systemone, GET /decisions/presets, GET /decisions/models.

An `Idempotency-Key` keeps the fact of a decision, never its answer.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import JSONResponse, Response

from contract.access import Scope
from contract.decisions.decision import MAX_BODY_BYTES, DecisionResult, check_body
from contract.decisions.native import DecisionReply, DecisionWire
from contract.decisions.openai import DecisionBody, OpenAIDecisionReply
from contract.decisions.questions import PresetList, listed_presets
from contract.decisions.systemone import SystemOneReply, SystemOneRequest
from contract.models import DECISION_LIMITS, DecisionModelList, describe_decision_model
from deployments.ingress.flows import decisions
from deployments.ingress.front.admission import Admitted, admit
from deployments.ingress.wire.idempotency import ACCEPTS_KEY, once
from deployments.ingress.wire.openapi import documented

router = APIRouter(tags=["decisions"])

Deciding = Annotated[Admitted, Depends(admit(Scope.DECISIONS, MAX_BODY_BYTES))]


@router.post("/decisions", openapi_extra=documented(DecisionBody, DecisionReply | OpenAIDecisionReply, **ACCEPTS_KEY))
async def decide(admitted: Deciding) -> Response:
    """Read probabilities over fixed options, in our shape or, for a body with `input`, in OpenAI's."""
    return await _decide(admitted, (await admitted.body(DecisionBody)).root)


@router.post("/systemone", openapi_extra=documented(SystemOneRequest, SystemOneReply, **ACCEPTS_KEY))
async def system_one(admitted: Deciding) -> Response:
    """Read probabilities over fixed options, in the shape that System One clients send and understand."""
    return await _decide(admitted, await admitted.body(SystemOneRequest))


@router.get("/decisions/presets", openapi_extra=documented(None, PresetList))
async def list_presets(admitted: Deciding) -> Response:
    """List the packs of questions, with example states and the answers that are expected for them."""
    return JSONResponse(listed_presets(admitted.context.service.catalog.presets.values()))


@router.get("/decisions/models", openapi_extra=documented(None, DecisionModelList))
async def list_models(admitted: Deciding) -> Response:
    """List the decision models of your organisation: who runs them, where, and what was measured."""
    context = admitted.context
    offered = context.offered(context.service.catalog.decisions)
    default = decisions.default_model(context)
    measured = await asyncio.gather(*(decisions.measurement(context, model) for model in offered))
    listed: DecisionModelList = {
        "object": "list",
        "data": [
            describe_decision_model(model, report, context.service.catalog.operator, is_default=model.id == default)
            for model, report in zip(offered, measured, strict=True)
        ],
        "default": next((model.id for model in offered if model.id == default), None),
        "limits": DECISION_LIMITS,
    }
    return JSONResponse(listed)


async def _decide(admitted: Admitted, wire: DecisionWire) -> Response:
    context, decision = admitted.context, wire.native()
    check_body(admitted.body_bytes, decision.addresses)
    model, preset = decisions.resolve(context, decision)

    def render(result: DecisionResult) -> Response:
        return JSONResponse(wire.render(result))

    return await once(admitted, partial(decisions.decide, context, decision, model, preset, render), keep_body=False)
