"""Writing a recording down, billed by its seconds.

prepare(context, request) -> Plan                 the model and what it is asked; everything that can be refused unheard
transcribe(context, plan, file, answer) -> text   as it is heard; `answer` holds what there is so far
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

from contract.catalog import ChatModel, TranscriptionModel
from contract.errors import AUDIO_TOO_LONG, NOT_CONFIGURED, RECORDING_TIMEOUT, UPSTREAM_TIMEOUT, WARMING_UP, ApiError
from contract.limits import FORMAT_TEXT_S
from contract.transcription.engine import TranscriptionEngine, TranscriptionJob, TranscriptUpdate
from contract.transcription.request import TranscriptionPlan, TranscriptionRequest, choose, plan
from contract.transcription.transcript import Formatted, Transcript
from deployments.ingress.context import RequestContext
from deployments.ingress.flows.formatting import FORMAT_WAIT_S, Formatting

ADDRESS_S = 600
"""For so long an engine can read a recording from the store: longer than any deadline."""


@dataclass(slots=True)
class TranscriptionAnswer:
    """What became of one recording. `formatted` comes last, where structure was requested."""

    transcript: Transcript
    formatted: Formatted | None = None


def prepare(context: RequestContext, request: TranscriptionRequest) -> TranscriptionPlan:
    """Chooses the model and checks what it is asked. Raises NOT_CONFIGURED and the errors of `plan`."""
    models = context.service.catalog.transcription
    model = choose(request, list(models.values()))
    if model is None or model not in context.offered(models):
        raise NOT_CONFIGURED()
    return plan(request, model)


async def transcribe(
    context: RequestContext, plan: TranscriptionPlan, file: bytes | None, answer: TranscriptionAnswer
) -> AsyncGenerator[str, None]:
    """Text as it is heard, written into `answer`; without a `file` it is the one that was uploaded.

    Whoever leaves early pays for what was heard until then. So does a client whose stream a time limit ends: it has the
    text, and chose how long the recording is. Raises the errors of a transcription.
    """
    transcript = answer.transcript
    async with (
        context.service.state.rates.stream(context.caller),
        await context.bill(
            plan.model, {"audio_seconds": 1}, "audio_seconds", is_stream=bool(plan.request.stream)
        ) as account,
        _formatting(context, plan) as formatting,
        _audio(context, plan.request.upload_id, file) as audio,
        aclosing(_segments(context, plan, plan.job(audio, context.owner), waits_for_engine=file is None)) as parts,
    ):
        async for part in parts:
            if not transcript.duration_s:
                await account.expect(audio_seconds=math.ceil(part.duration_s))
            text = transcript.add(part)
            await account.progress(audio_seconds=transcript.billed_seconds)
            if formatting:
                formatting.add(part.segments)
            if text:
                yield text
        await account.settle(audio_seconds=math.ceil(transcript.seconds))
        if formatting:
            answer.formatted = await formatting.finish(
                transcript.text, min(FORMAT_WAIT_S, _left_s(context, plan.model))
            )


async def _segments(
    context: RequestContext, plan: TranscriptionPlan, job: TranscriptionJob, *, waits_for_engine: bool
) -> AsyncGenerator[TranscriptUpdate, None]:
    """The parts of an answer, within the time that the model has for all of it.

    What was uploaded is held while the engine starts; for what can be sent again, the engine decides.
    """
    loop, engine = asyncio.get_running_loop(), context.engine(plan.model)
    ends_at = loop.time() + _left_s(context, plan.model)
    began: float | None = None
    try:
        if waits_for_engine:
            await engine.ready(_left_s(context, plan.model), timings=context.timings)
        async with aclosing(engine.stream(TranscriptionEngine.transcribe, job, context=context.call)) as parts:
            while True:
                async with asyncio.timeout_at(ends_at):
                    part = await anext(parts, None)
                if part is None:
                    return
                began = began or loop.time()
                yield part
    except TimeoutError:
        raise _late(plan.model, loop.time() - began if began else 0.0) from None
    except ApiError as error:
        if error.fault is AUDIO_TOO_LONG and plan.request.format_text:
            raise AUDIO_TOO_LONG(
                f"with `format_text` a recording may last {FORMAT_TEXT_S // 60} minutes; {error.message}",
                param="format_text",
            ) from None
        raise


def _left_s(context: RequestContext, model: TranscriptionModel) -> float:
    """What is left of the time that the model has for its answer, in seconds."""
    return max(0.0, model.answer_s - (time.perf_counter() - context.trace.started_s))


def _late(model: TranscriptionModel, computed_s: float) -> ApiError:
    """Whose fault it is that there is no answer: the recording's, the engine's, or that it had to start first."""
    if not model.computed_s:
        return UPSTREAM_TIMEOUT()
    return RECORDING_TIMEOUT() if computed_s >= model.computed_s else WARMING_UP(retry_after_s=60)


@asynccontextmanager
async def _audio(context: RequestContext, upload_id: str | None, file: bytes | None) -> AsyncIterator[bytes | str]:
    """The recording: as it came, or an address of what was uploaded. That is used up by this request, however it ends.

    Raises NOT_FOUND for a ticket that is unknown or used, or whose bytes never came.
    """
    if file is not None:
        yield file
        return
    assert upload_id is not None
    state = context.service.state
    ticket = await state.tickets.consume(context.caller.org_id, upload_id)
    try:
        yield await state.blobs.address(ticket.blob, ADDRESS_S)
    finally:
        await asyncio.shield(state.tickets.discard(ticket))


@asynccontextmanager
async def _formatting(context: RequestContext, plan: TranscriptionPlan) -> AsyncIterator[Formatting | None]:
    """The structuring pass, which starts together with the listening; None where none was requested."""
    if not plan.request.format_text:
        yield None
        return
    async with Formatting(context, plan.language, _formatter(context, plan.model)) as formatting:
        yield formatting


def _formatter(context: RequestContext, model: TranscriptionModel) -> ChatModel | None:
    """The chat model that adds structure, if it is set up and offered to the caller."""
    chats = context.service.catalog.chat
    chat = chats.get(model.formatter) if model.formatter else None
    return chat if chat and chat in context.offered(chats) else None
