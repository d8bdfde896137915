"""Calls of an LLM: it answers a conversation or continues prompts, billed by tokens, and counts tokens for free.

complete, stream                        a conversation
whole, streamed                         any job of an engine: prompts, as plain text
count, refuse_longer, tokenize, detokenize

Counting costs nothing, but may start an engine as chat does: not for callers who may spend nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Any, TypeVar, cast

from contract.catalog import ChatModel
from contract.chat.engine import ChatBatch, ChatEngine, ChatJob, ChatReply, check_logprobs
from contract.chat.request import ChatRequest
from contract.chat.thinking import check_fits_model
from contract.completions import CompletionJob, CompletionReply
from contract.errors import CONTEXT_LENGTH_EXCEEDED, UPSTREAM_ERROR, UPSTREAM_TIMEOUT, ApiError
from contract.limits import STREAM_SLICE_OUTPUT_TOKENS
from contract.telemetry import CACHED_TOKENS, OUTPUT_TOKEN
from contract.tokens import DetokenizeJob, Tokenized, TokenizeJob, check_job, reply_bytes
from deployments.ingress.context import RequestContext
from state.billing.reservation import OpenBill

J = TypeVar("J", ChatJob, CompletionJob)
A = TypeVar("A", ChatReply, CompletionReply)
R = TypeVar("R")


async def complete(context: RequestContext, model: ChatModel, job: ChatJob, render: Callable[[ChatReply], R]) -> R:
    """The whole answer, as `render` makes it of the engine's; what that raises is not billed."""
    return await whole(context, model, job, ChatEngine.complete, render)


def stream(context: RequestContext, model: ChatModel, request: ChatRequest) -> AsyncGenerator[ChatBatch, None]:
    """The answer as it is made. A client that leaves early pays for what was produced until then."""
    return streamed(context, model, job_of(context, model, request), ChatEngine.stream)


async def whole(
    context: RequestContext,
    model: ChatModel,
    job: J,
    method: Callable[[Any, J], Awaitable[A]],
    render: Callable[[A], R],
) -> R:
    """Returns the answer of `method` to `job`, as `render` makes it; errors of that are not billed."""
    estimate = _estimate(job, model, job.most_output_tokens(model))
    async with await context.bill(model, estimate, begun=partial(_begun, job, model)) as bill:
        reply = await _answered(context, model, job, method, bill)
        rendered = render(reply)
        await bill.settle(**_quantities(model, reply))
    _report_cached(context, model, reply.cached_tokens)
    return rendered


async def _answered(
    context: RequestContext, model: ChatModel, job: J, method: Callable[[Any, J], Awaitable[A]], bill: OpenBill
) -> A:
    """Returns the answer of `method` to `job`.

    It crosses in one piece, so its progress is unknown here when its client leaves. Counts on the way cost a seventh
    of a short request's processor time: they are made for organisations with clients that have left.
    """
    engine, service, org_id = context.engine(model), context.service, context.caller.org_id
    if service.recent_disconnects.get(org_id, time.monotonic()):
        return cast(A, await _counted(context, model, job, bill))
    try:
        return await engine.call(method, job, context=context.call)
    except (asyncio.CancelledError, ApiError) as error:
        is_work_lost = not isinstance(error, ApiError) or error.fault is UPSTREAM_TIMEOUT
        if is_work_lost and context.timings.was_sent:
            service.recent_disconnects.put(org_id, True, time.monotonic())
        raise


async def _counted(
    context: RequestContext, model: ChatModel, job: ChatJob | CompletionJob, bill: OpenBill
) -> ChatReply | CompletionReply:
    reply: ChatReply | CompletionReply | None = None
    async with aclosing(context.engine(model).stream(ChatEngine.counted, job, context=context.call)) as counts:
        async for count in counts:
            if not isinstance(count, ChatBatch):
                reply = count
                continue
            # The gate bounds the time until each of them.
            if context.timings.engine > model.setup.deadline_s:
                raise UPSTREAM_TIMEOUT()
            await bill.count(**_quantities(model, count))
    if reply is None:
        raise UPSTREAM_ERROR()
    return reply


async def streamed(
    context: RequestContext, model: ChatModel, job: J, method: Callable[[Any, J], AsyncIterator[ChatBatch]]
) -> AsyncGenerator[ChatBatch, None]:
    """Yields the answer of `method` to `job`, batch by batch. A client that leaves early pays for what was made.

    The bill is settled as this generator ends, before the caller sends its last event.
    """
    first_slice = min(STREAM_SLICE_OUTPUT_TOKENS, job.most_output_tokens(model))
    async with (
        context.service.state.rates.stream(context.caller),
        await context.bill(
            model, _estimate(job, model, first_slice), begun=partial(_begun, job, model), is_stream=True
        ) as bill,
        aclosing(context.engine(model).stream(method, job, context=context.call)) as batches,
    ):
        timings, metrics, cached = context.timings, context.service.metrics, 0
        first_tokens = tokens = -1
        first_s = last_s = 0.0
        try:
            async for batch in batches:
                if batch.completion_tokens > tokens:
                    last_s, tokens = timings.engine, batch.completion_tokens
                    if first_tokens < 0:  # it has waited for the prompt
                        first_s, first_tokens = last_s, tokens
                cached = batch.cached_tokens
                await bill.progress(**_quantities(model, batch))
                yield batch
            if tokens > first_tokens:
                metrics.observe(OUTPUT_TOKEN, (model.id,), (last_s - first_s) / (tokens - first_tokens))
        finally:
            _report_cached(context, model, cached)


def _report_cached(context: RequestContext, model: ChatModel, tokens: int) -> None:
    if tokens > 0:
        context.service.metrics.totals[CACHED_TOKENS, (model.id,)] += tokens


def job_of(context: RequestContext, model: ChatModel, request: ChatRequest) -> ChatJob:
    """The job of `request`. Raises INVALID_REQUEST, IMAGES_UNSUPPORTED: what is refused here starts no engine."""
    check_fits_model(request, model)
    job = ChatJob(request, context.owner)
    if request.logprobs:
        others = request.top_logprobs or 0
        check_logprobs(job.most_output_tokens(model), others, "top_logprobs" if others else "logprobs")
    return job


def _estimate(job: ChatJob | CompletionJob, model: ChatModel, output_tokens: int) -> dict[str, int]:
    return {"input_tokens": job.most_input_tokens(model), "output_tokens": output_tokens}


def _begun(job: ChatJob | CompletionJob, model: ChatModel) -> dict[str, int]:
    """All of the prompt at its full price: a client that asks again finds it in the cache."""
    return {"input_tokens": job.likely_input_tokens(model)}


def _quantities(model: ChatModel, counted: ChatReply | ChatBatch | CompletionReply) -> dict[str, int]:
    """Quantities by unit; together they are all tokens. Cached ones are apart where they have a price of their own."""
    cached = counted.cached_tokens if "cached_input_tokens" in model.price else 0
    used = {"input_tokens": counted.prompt_tokens - cached, "output_tokens": counted.completion_tokens}
    return used | ({"cached_input_tokens": cached} if cached else {})


async def count(context: RequestContext, model: ChatModel, request: ChatRequest) -> int:
    """Tokens of the prompt that `request` is to `model`, those beyond its window included. Raises as `tokenize`."""
    return len((await tokenize(context, model, TokenizeJob(request))).ids)


async def refuse_longer(context: RequestContext, model: ChatModel, request: ChatRequest) -> None:
    """Raises CONTEXT_LENGTH_EXCEEDED where the prompt would be cut, and what `count` raises."""
    length = await count(context, model, request)
    if length >= model.context_window:
        raise CONTEXT_LENGTH_EXCEEDED(
            f"the input has {length} tokens; `{model.id}` has {model.context_window} for input and answer together",
            param="messages",
        )


async def tokenize(context: RequestContext, model: ChatModel, job: TokenizeJob) -> Tokenized:
    """The tokens of a text or of a conversation.

    Raises INVALID_REQUEST for too much text, TOO_MUCH_AT_ONCE, and a spend limit.
    """
    check_job(job, model)
    await context.service.state.ledger.require_funds(context.caller)
    with context.memory_for(reply_bytes(job)):
        return await context.engine(model).call(ChatEngine.tokenize, job, context=context.call)


async def detokenize(context: RequestContext, model: ChatModel, job: DetokenizeJob) -> str:
    """The text of some tokens. Raises INVALID_REQUEST for an id that the vocabulary lacks, and a spend limit."""
    await context.service.state.ledger.require_funds(context.caller)
    return await context.engine(model).call(ChatEngine.detokenize, job, context=context.call)
