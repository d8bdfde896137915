"""Reading probabilities over fixed options, billed by input tokens and questions.

Nothing of a state, its questions or its answers is stored or logged; what an engine raises reaches the log by its type
alone.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from autoscaling.engine import CallContext
from contract.catalog import DecisionModel
from contract.decisions.answers import expand_orders, to_answers
from contract.decisions.decision import DecisionResult
from contract.decisions.engine import DecisionEngine, DecisionJob, Measurement, Readings
from contract.decisions.native import DecisionRequest
from contract.decisions.questions import Preset, named
from contract.errors import ENGINE_FAILED, IMAGES_UNSUPPORTED, RUNTIME_UNAVAILABLE, WARMING_UP, ApiError
from deployments.ingress.context import RequestContext

R = TypeVar("R")

MEASUREMENT_WAIT_S = 2.0
"""Seconds that a list of models waits for a running scorer's own report."""


def resolve(context: RequestContext, decision: DecisionRequest) -> tuple[DecisionModel, Preset | None]:
    """The model that reads, and the pack that is named. Raises UNKNOWN_PRESET, MODEL_NOT_FOUND, IMAGES_UNSUPPORTED."""
    preset = None if decision.preset is None else named(context.service.catalog.presets, decision.preset)
    model = context.pick(context.service.catalog.decisions, decision.model, default_model(context))
    if decision.images and not model.reads_images:
        raise IMAGES_UNSUPPORTED(f"model `{model.id}` does not read images here; send none", param="images")
    return model, preset


def default_model(context: RequestContext) -> str | None:
    """Id of the model for decisions that name none: the organisation's choice, else the catalogue's first stanza.

    Whether it can be used here is another question: if not, a request has to name one.
    """
    return context.caller.decision_model or next(iter(context.service.catalog.decisions), None)


async def decide(
    context: RequestContext,
    decision: DecisionRequest,
    model: DecisionModel,
    preset: Preset | None,
    render: Callable[[DecisionResult], R],
) -> R:
    """Every answer, or none, as `render` makes a reply of them; what that raises is not billed.

    Raises RUNTIME_UNAVAILABLE: another model never steps in.
    """
    questions = preset.questions if preset else decision.questions or {}
    job = DecisionJob(decision.text, expand_orders(questions, decision.order), decision.addresses, context.owner)
    count = len(job.questions)
    estimate = {"input_tokens": job.most_input_tokens(model), "questions": count}
    async with await context.bill(
        model, estimate, begun=lambda: {"input_tokens": job.likely_input_tokens(), "questions": count}
    ) as bill:
        readings = await _read(context, model, job)
        result = DecisionResult(
            id=f"dec_{secrets.token_hex(16)}",
            created=int(time.time()),
            model=model,
            operator=context.service.catalog.operator,
            preset=preset,
            questions=questions,
            answers=to_answers(questions, readings, decision.policy, decision.order),
            readings=readings,
            total_s=time.perf_counter() - context.exchange.started_s,
        )
        rendered = render(result)
        await bill.settle(input_tokens=readings.input_tokens, questions=count)
    return rendered


async def measurement(context: RequestContext, model: DecisionModel) -> Measurement | None:
    """Returns the last report of a running scorer. Wakes none, and keeps none awake for it."""
    last = context.service.measurements
    engine = context.engine(model)
    if engine.running():
        with suppress(ApiError, TimeoutError):
            async with asyncio.timeout(MEASUREMENT_WAIT_S):
                await context.service.state.ledger.require_funds(context.caller)
                if report := await engine.call(DecisionEngine.measured, None, context=CallContext()):
                    last[model.id] = report
    return last.get(model.id)


async def _read(context: RequestContext, model: DecisionModel, job: DecisionJob) -> Readings:
    try:
        return await context.engine(model).call(DecisionEngine.decide, job, context=context.call)
    except ApiError as error:
        if error.fault in (WARMING_UP, ENGINE_FAILED):
            raise RUNTIME_UNAVAILABLE(retry_after_s=error.retry_after_s) from None
        raise
