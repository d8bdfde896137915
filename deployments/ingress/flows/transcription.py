"""Writing a recording down, billed by its seconds, and the structure of its text.

prepare(context, request) -> Plan                 the model and what it is asked; everything that can be refused unheard
transcribe(context, plan, file, answer) -> texts  as they are transcribed; `answer` holds what there is so far
Formatting(context, formatter)                    the structuring pass beside it

A chat model gets piece after piece as they are transcribed, as if the caller had sent them to POST /chat/completions:
billed so, refused so. Without a model, rules do it when all is transcribed. Either way the verdict is taken over the
whole text.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Self

from autoscaling.engine import Timings
from contract.catalog import ChatModel, TranscriptionModel
from contract.catalog.base import MILLION
from contract.errors import (
    AUDIO_TOO_LONG,
    NOT_CONFIGURED,
    RECORDING_TIMEOUT,
    UPSTREAM_TIMEOUT,
    WARMING_UP,
    ApiError,
    without_text,
)
from contract.limits import FORMAT_TEXT_S
from contract.transcription.engine import Segment, TranscriptionEngine, TranscriptionJob, TranscriptUpdate
from contract.transcription.request import TranscriptionPlan, TranscriptionRequest, choose, plan
from contract.transcription.transcript import Formatted, Transcript
from deployments.ingress.context import RequestContext
from deployments.ingress.flows import chat
from state.billing.reservation import OpenBill
from text.formatting.request import NoAnswer, answer_of, joined, pieces, request_for
from text.formatting.rules import structured
from text.formatting.verdict import judge, unformatted

log = logging.getLogger(f"parlance.{__name__}")

ADDRESS_S = 600
"""Seconds for which an engine can read a recording from the store: longer than any deadline."""

FORMAT_WAIT_S = 30.0
"""Seconds that a whole transcript waits for its structure."""

PIECES_AT_ONCE = 2
"""Of one transcript, under way in the engine."""

FAILED = "formatter_failed"
BUSY = "formatter_busy"
LATE = "formatter_timeout"
SPEND_LIMIT = "spend_limit"


@dataclass(slots=True)
class TranscriptionAnswer:
    """Result of one recording. `formatted` comes last, if structure was requested."""

    transcript: Transcript
    formatted: Formatted | None = None


def prepare(context: RequestContext, request: TranscriptionRequest) -> TranscriptionPlan:
    """Chooses the model and checks what it is asked. Raises NOT_CONFIGURED and the errors of `plan`."""
    models = context.service.catalog.transcription
    model = choose(request, list(models.values()))
    if model is None or model not in context.offered(models):
        raise NOT_CONFIGURED()
    return plan(request, model)


@asynccontextmanager
async def transcribe(
    context: RequestContext, plan: TranscriptionPlan, file: bytes | None, answer: TranscriptionAnswer
) -> AsyncIterator[AsyncGenerator[str, None]]:
    """Text as it is transcribed, written into `answer`, which is whole once all of it was taken.

    Without a `file` it is the one that was uploaded.
    The end of the block is billed, so what fails in it is not. A client that leaves early pays for what was transcribed
    until then. So does one with a stream that a time limit ends: it has the text, and chose how long the recording is.
    Raises the errors of a transcription.
    """
    transcript = answer.transcript
    async with (
        context.service.state.rates.stream(context.caller),
        await context.bill(
            plan.model, {"audio_seconds": 1}, "audio_seconds", is_stream=bool(plan.request.stream)
        ) as bill,
        _formatting(context, plan) as formatting,
        _audio(context, plan.request.upload_id, file) as audio,
        aclosing(_segments(context, plan, await _job(context, plan, audio), bill, file is None)) as parts,
    ):

        async def texts() -> AsyncGenerator[str, None]:
            async for part in parts:
                if not transcript.duration_s:
                    await bill.expect(audio_seconds=math.ceil(part.duration_s))
                text = transcript.add(part)
                await bill.progress(audio_seconds=transcript.billed_seconds)
                if formatting:
                    formatting.add(part.segments, text)
                if text:
                    yield text
            if formatting:
                wait_s = min(FORMAT_WAIT_S, _left_s(context, plan.model))
                answer.formatted = await formatting.finish(transcript.text, wait_s)

        async with aclosing(texts()) as continuations:
            yield continuations
        await bill.settle(audio_seconds=math.ceil(transcript.seconds))


async def _job(context: RequestContext, plan: TranscriptionPlan, audio: bytes | str) -> TranscriptionJob:
    """The job; its recording may last no longer than the spend limits have room for: no more of it is decoded."""
    job, caller, price = plan.job(audio, context.owner), context.caller, plan.model.price.get("audio_seconds")
    if not price or not (caller.org_limited or caller.user_limited):
        return job
    spends = (await context.service.state.accounts.describe(caller))["spend"]
    lefts = [
        spend["left_micro_eur"] + spend["in_advance_micro_eur"]
        for spend in (spends["organisation"], spends["user"])
        if spend and spend["left_micro_eur"] is not None
    ]
    # One second more is reserved.
    return replace(job, max_seconds=min([job.max_seconds, *(1 + left * MILLION // price for left in lefts)]))


async def _segments(
    context: RequestContext, plan: TranscriptionPlan, job: TranscriptionJob, bill: OpenBill, waits_for_engine: bool
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
        # It is for the recording, for the engine, or because the engine had to start first.
        most_s, spent_s = plan.model.computed_s, loop.time() - began if began else 0.0
        if not most_s:
            raise UPSTREAM_TIMEOUT() from None
        raise (RECORDING_TIMEOUT() if spent_s >= most_s else WARMING_UP(retry_after_s=60)) from None
    except ApiError as error:
        if error.fault is AUDIO_TOO_LONG and job.max_seconds < plan.max_seconds:
            await bill.expect(audio_seconds=math.ceil(plan.max_seconds))  # raises the limit that has no room
        if error.fault is AUDIO_TOO_LONG and plan.request.format_text:
            raise AUDIO_TOO_LONG(
                f"with `format_text` a recording may last {FORMAT_TEXT_S // 60} minutes; {error.message}",
                param="format_text",
            ) from None
        raise


def _left_s(context: RequestContext, model: TranscriptionModel) -> float:
    """Seconds that the model has left for its answer."""
    return max(0.0, model.answer_s - (time.perf_counter() - context.exchange.started_s))


@asynccontextmanager
async def _audio(context: RequestContext, upload_id: str | None, file: bytes | None) -> AsyncIterator[bytes | str]:
    """The recording: as it came, or an address of what was uploaded. That is used up by this request, however it ends.

    Raises NOT_FOUND for a ticket that is unknown or used, or without bytes.
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


def _formatting(context: RequestContext, plan: TranscriptionPlan) -> Formatting | AbstractAsyncContextManager[None]:
    """The structuring pass, which starts together with the listening; None where none was requested."""
    if not plan.request.format_text:
        return nullcontext()
    # The chat model that adds structure, where it is set up and offered to the caller.
    offered = context.offered(context.service.catalog.chat)
    formatter = next((model for model in offered if model.id == plan.model.formatter), None)
    return Formatting(context, formatter)


class Formatting:
    """The pass over one transcript. Leaving it as a context manager, or `close`, ends whatever still runs.

    Args:
        context: of the request that is transcribed.
        formatter: a chat model that is set up and open to the caller; None for the rules.
    """

    def __init__(self, context: RequestContext, formatter: ChatModel | None) -> None:
        self._context = context
        self._formatter = formatter
        self._segments: list[Segment] = []
        self._rest = ""
        self._pieces: list[str] = []
        self._tasks: list[asyncio.Task[str]] = []
        self._timings: list[Timings] = []
        self._free = asyncio.Semaphore(PIECES_AT_ONCE)
        self._error: Exception | None = None
        if formatter:
            context.engine(formatter).warm()

    def add(self, segments: Sequence[Segment], text: str) -> None:
        """Takes segments, and their text as the transcript continues with it. Begins with the pieces that are whole."""
        self._segments += segments
        if self._formatter:
            self._rest += text
            self._begin(self._formatter, is_last=False)

    async def finish(self, transcript: str, wait_s: float = FORMAT_WAIT_S) -> Formatted:
        """The transcript with structure, or as it was and why, after `wait_s` at the latest. Raises nothing."""
        try:
            async with asyncio.timeout(wait_s):
                text = await self._text(transcript)
                return await asyncio.to_thread(judge, transcript, text)
        except TimeoutError:
            self._waive_charge()
            return unformatted(transcript, LATE)
        except Exception as error:
            return unformatted(transcript, _reason(error))
        finally:
            await self.close()

    async def close(self) -> None:
        """Cancels the pieces under way: a client that leaves then pays what chat costs."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _waive_charge(self) -> None:
        """Has nothing charged for pieces that are cancelled from here on, though an engine has begun them."""
        for timings in self._timings:
            timings.was_sent = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def _text(self, transcript: str) -> str:
        if self._formatter is None:
            return await asyncio.to_thread(structured, transcript, tuple(self._segments))
        self._begin(self._formatter, is_last=True)
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._error:
            raise self._error
        return joined(self._pieces, [task.result() for task in self._tasks])

    def _begin(self, formatter: ChatModel, is_last: bool) -> None:
        """Starts with every piece that is whole, unless one has failed already."""
        whole, self._rest = pieces(self._rest, is_last)
        if self._error:
            return
        self._pieces += whole
        self._tasks += [asyncio.create_task(self._structured_by(formatter, piece)) for piece in whole]

    async def _structured_by(self, formatter: ChatModel, piece: str) -> str:
        """One piece; empty if the pass has failed. The first failure ends the others: half of it is worth nothing."""
        try:
            async with self._free:
                # Its own timings: those of the request are the transcriber's.
                timings = Timings()
                self._timings.append(timings)
                context = replace(self._context, timings=timings)
                # Billed whether or not it can be used: that is no fault of the engine's.
                job = chat.job_of(context, formatter, request_for(piece, formatter))
                reply = await chat.complete(context, formatter, job, lambda reply: reply)
                return answer_of(reply)
        except Exception as error:
            self._error = self._error or error
            if not isinstance(error, NoAnswer) and not (isinstance(error, ApiError) and error.fault.status < 500):
                self._waive_charge()  # a failure of this server; else what has begun is owed
            for task in self._tasks:
                if task is not asyncio.current_task():
                    task.cancel()
            return ""


def _reason(error: Exception) -> str:
    """The code that an answer gives. What is no refusal is our own fault, and logged."""
    if isinstance(error, ApiError):
        return {402: SPEND_LIMIT, 429: BUSY, 503: BUSY}.get(error.fault.status, FAILED)
    if not isinstance(error, NoAnswer):
        log.error("a formatting pass failed with an internal error: %s", without_text(error))
    return FAILED
