"""POST /decisions, POST /systemone, GET /decisions/presets, GET /decisions/models. Spec 4 (decision engine).

Nothing of a state, its questions or its answers is stored or logged: an `Idempotency-Key` keeps the fact, never the
answer, and what an engine raises reaches the log by its type alone.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Annotated, Any

from contract.decisions.wires import ListedRequest
from fastapi import APIRouter, Depends
from starlette.responses import JSONResponse, Response

from autoscaling.gate import Timings
from contract import limits
from contract.access import Scope
from contract.catalog import DecisionModel, Serving
from contract.decisions import answers as decision_answers
from contract.decisions.bodies import DecisionBody
from contract.decisions.decision import MAX_BODY_BYTES, check_body
from contract.decisions.engine import Measurement, Readings
from contract.decisions.native import DecisionRequest
from contract.decisions.orders import both_orders, folded
from contract.decisions.questions import Question
from contract.decisions.systemone import SystemOneRequest
from contract.errors import (
    ENGINE_FAILED,
    IMAGES_UNSUPPORTED,
    RUNTIME_UNAVAILABLE,
    UNKNOWN_PRESET,
    WARMING_UP,
    ApiError,
)
from deployments.ingress.admission import Admitted, admit
from deployments.ingress.billing import bill, most_tokens
from deployments.ingress.idempotency import ACCEPTS_KEY, once

router = APIRouter(tags=["decisions"])

Request = DecisionRequest | ListedRequest | SystemOneRequest

Deciding = Annotated[Admitted, Depends(admit(Scope.DECISIONS, MAX_BODY_BYTES))]

ASK_S = 2.0
"""How long a list of models waits for what a running scorer says of itself."""


@router.post("/decisions", openapi_extra=ACCEPTS_KEY)
async def decide(admitted: Deciding) -> Response:
    """Read probabilities over fixed options."""
    return await _decide(admitted, (await admitted.body(DecisionBody)).root)


@router.post("/systemone", openapi_extra=ACCEPTS_KEY)
async def system_one(admitted: Deciding) -> Response:
    """Read probabilities over fixed options, in the shape that System One clients send and understand."""
    return await _decide(admitted, await admitted.body(SystemOneRequest))


@router.get("/decisions/presets")
async def list_presets(admitted: Deciding) -> Response:
    """List the packs of questions, with example states and the answers that are expected for them."""
    presets = admitted.service.catalog.presets.values()
    return JSONResponse({"object": "list", "data": [preset.public() for preset in presets]})


@router.get("/decisions/models")
async def list_models(admitted: Deciding) -> Response:
    """List the decision models of your organisation: who runs them, where, and what was measured."""
    offered = admitted.service.offered(admitted.service.catalog.decisions, admitted.caller)
    default = admitted.caller.decision_model or (offered[0].id if offered else None)
    measured = await asyncio.gather(*(_measurement(admitted, model) for model in offered))
    data = [
        _describe(model, found, is_default=model.id == default) for model, found in zip(offered, measured, strict=True)
    ]
    return JSONResponse({"object": "list", "data": data, "default": default, "limits": LIMITS})


async def _decide(admitted: Admitted, request: Request) -> Response:
    """What all shapes of a request have in common: rules, gate, reply."""
    images = request.image_addresses()
    check_body(admitted.exchange.body_bytes, images)
    questions = _questions(admitted, request)
    model = _pick(admitted, request.model)
    if images and not model.reads_images:
        raise IMAGES_UNSUPPORTED(f"model `{model.id}` reads no images here; send none", param="images")
    return await once(admitted, partial(_answer, admitted, model, request, questions), keep_body=False)


async def _answer(
    admitted: Admitted, model: DecisionModel, request: Request, questions: Mapping[str, Question]
) -> Response:
    text = request.text()
    asked = list(questions.values()) if request.order == "source" else both_orders(questions)
    asked_bytes = sum(len(question.model_dump_json().encode()) for question in asked)
    most = most_tokens(len(text.encode()) + asked_bytes, len(asked))
    if request.image_addresses():
        most += model.context_window  # how many tokens an image has depends on the model; no prompt has more
    async with bill(admitted, model, {"input_tokens": most, "questions": len(asked)}) as account:
        readings = await _read(admitted, model, text, asked, request)
        answers = _answers(questions, readings, request)
        await account.settle(input_tokens=readings.input_tokens, questions=len(asked))
    decision_id = f"dec_{secrets.token_hex(16)}"
    if isinstance(request, DecisionRequest):
        return JSONResponse(_result(admitted, decision_id, model, request, readings, answers))
    return JSONResponse(request.reply(decision_id, model.id, answers, readings))


def _answers(questions: Mapping[str, Question], readings: Readings, request: Request) -> dict[str, Any]:
    """Answers by name; those that were asked in both orders say what the order changed."""
    changed: dict[str, dict[str, Any]] = {}
    if request.order == "both":
        readings, changed = folded(questions, readings)
    found = decision_answers.answers(questions, readings, request.policy)
    for name, difference in changed.items():
        found[name]["order"] = difference
    return found


async def _read(
    admitted: Admitted, model: DecisionModel, text: str, asked: Sequence[Question], request: Request
) -> Readings:
    """Another model never steps in: what cannot be reached is 503 RUNTIME_UNAVAILABLE."""
    salt = f"org-{admitted.caller.org_id}"
    engine = admitted.service.engine(model)
    try:
        readings: Readings = await engine.call(
            "decide", text, asked, request.image_addresses(), salt, timings=admitted.exchange.timings
        )
    except ApiError as error:
        if error.fault in (WARMING_UP, ENGINE_FAILED):
            raise RUNTIME_UNAVAILABLE(retry_after_s=error.retry_after_s) from None
        raise
    return readings


def _result(
    admitted: Admitted,
    decision_id: str,
    model: DecisionModel,
    request: DecisionRequest,
    readings: Readings,
    answers: dict[str, Any],
) -> dict[str, Any]:
    result: dict[str, Any] = {
        "id": decision_id,
        "object": "decision",
        "status": "completed",
        "created": int(time.time()),
        "model": {"id": model.id, "runtime": _runtime(model), **_origin(model)},
    }
    if request.preset is not None:
        preset = admitted.service.catalog.presets[request.preset]
        result["preset"] = {"id": preset.id, "version": preset.version}
    result |= {
        "answers": answers,
        "policy": request.policy.model_dump(),
        "usage": decision_answers.usage(readings, len(answers)),
        "timing_ms": decision_answers.timing_ms(readings.reads, time.perf_counter() - admitted.exchange.started),
    }
    if request.request_id is not None:
        result["request_id"] = request.request_id
    return result


def _questions(admitted: Admitted, request: Request) -> Mapping[str, Question]:
    """The questions of the body or of its preset. Raises UNKNOWN_PRESET."""
    wanted = request.preset
    if wanted is None:
        return request.named_questions()
    presets = admitted.service.catalog.presets
    if wanted not in presets:
        names = ", ".join(f"`{name}`" for name in presets)
        raise UNKNOWN_PRESET(f"there is no preset `{wanted[:100]}`; there are: {names}", param="preset")
    return presets[wanted].questions


def _pick(admitted: Admitted, model_id: str | None) -> DecisionModel:
    """The model that is named, else the organisation's default, else the service's. Raises MODEL_NOT_FOUND."""
    wanted = model_id if model_id is not None else admitted.caller.decision_model
    return admitted.service.pick(admitted.service.catalog.decisions, wanted, admitted.caller)


async def _measurement(admitted: Admitted, model: DecisionModel) -> Measurement | None:
    """What a running scorer says of itself, or has said last. Wakes none."""
    last = admitted.service.measurements
    engine = admitted.service.engine(model)
    if engine.running():
        with suppress(ApiError, TimeoutError):
            async with asyncio.timeout(ASK_S):
                last[model.id] = await engine.call("measured", timings=Timings())
    return last.get(model.id)


def _describe(model: DecisionModel, measured: Measurement | None, *, is_default: bool) -> dict[str, Any]:
    return {
        "id": model.id,
        "object": "decision_model",
        "created": model.created,
        "display_name": model.display_name,
        "description": model.description,
        "default": is_default,
        "runtime": _runtime(model),
        **_origin(model),
        "images": model.reads_images,
        "context_window": model.context_window,
        "status": "measured" if measured else "not_measured",
        "measurements": measured.model_dump() if measured else None,
    }


def _origin(model: DecisionModel) -> dict[str, str]:
    return {"operator": model.operator, "country": model.country, "via": model.via}


def _runtime(model: DecisionModel) -> str:
    serving = model.serving
    assert isinstance(serving, Serving), "only models that are set up are offered"
    return serving.runtime


LIMITS = {
    "questions": limits.DECISION_QUESTIONS,
    "state_characters": limits.DECISION_STATE_CHARS,
    "question_characters": limits.DECISION_QUESTION_CHARS,
    "description_characters": limits.DECISION_DESCRIPTION_CHARS,
    "options": list(limits.DECISION_OPTIONS),
    "levels": list(limits.DECISION_LEVELS),
    "body_bytes": limits.DECISION_BODY_BYTES,
    "images": limits.DECISION_IMAGES,
    "image_bytes": limits.DECISION_IMAGE_BYTES,
}
"""Shown to clients, so that they need not guess."""
