"""Answering a conversation, billed by tokens. Spec 4 (POST /chat/completions).

`whole` and `streamed` serve every job that an LLM answers with tokens.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Any, TypeVar, cast

from contract.catalog import ChatModel
from contract.chat.engine import ChatBatch, ChatEngine, ChatJob, ChatReply
from contract.chat.request import ChatRequest
from contract.chat.thinking import told
from contract.completions import CompletionJob, CompletionReply
from contract.errors import UPSTREAM_ERROR, UPSTREAM_TIMEOUT, ApiError
from contract.limits import STREAM_SLICE_OUTPUT_TOKENS
from contract.logprobs import check_logprobs
from deployments.ingress.money.billing import Account, bill
from deployments.ingress.context import RequestContext

J = TypeVar("J", ChatJob, CompletionJob)
A = TypeVar("A", ChatReply, CompletionReply)
R = TypeVar("R")


async def complete(
    context: RequestContext, model: ChatModel, request: ChatRequest, render: Callable[[ChatReply], R]
) -> R:
    """The whole answer, as `render` makes it of the engine's; what that raises is not billed."""
    return await whole(context, model, _job(context, model, request), ChatEngine.complete, render)


def stream(context: RequestContext, model: ChatModel, request: ChatRequest) -> AsyncGenerator[ChatBatch, None]:
    """The answer as it is made. Whoever leaves early pays for what was produced until then."""
    return streamed(context, model, _job(context, model, request), ChatEngine.stream)


async def whole(
    context: RequestContext,
    model: ChatModel,
    job: J,
    method: Callable[[Any, J], Awaitable[A]],
    render: Callable[[A], R],
) -> R:
    """What `method` answers to `job`, as `render` makes it; what that raises is not billed."""
    estimate = _estimate(job, model, job.most_output_tokens(model))
    async with bill(context, model, estimate, begun=partial(_begun, job, model)) as account:
        reply = await _answered(context, model, job, method, account)
        rendered = render(reply)
        await account.settle(**_quantities(model, reply))
    return rendered


async def _answered(
    context: RequestContext, model: ChatModel, job: J, method: Callable[[Any, J], Awaitable[A]], account: Account
) -> A:
    """What `method` answers to `job`.

    It crosses in one piece, so nobody here knows how far it is when its client leaves. Counts on the way cost a seventh
    of a short request's processor time: they are made for organisations whose clients have left.
    """
    engine, leavers, org_id = context.engine(model), context.service.leavers, context.caller.org_id
    if leavers.get(org_id, time.monotonic()):
        return cast(A, await _counted(context, model, job, account))
    try:
        return await engine.call(method, job, timings=context.timings)
    except (asyncio.CancelledError, ApiError) as error:
        is_work_lost = not isinstance(error, ApiError) or error.fault is UPSTREAM_TIMEOUT
        if is_work_lost and context.timings.has_begun:
            leavers.put(org_id, True, time.monotonic())
        raise


async def _counted(
    context: RequestContext, model: ChatModel, job: ChatJob | CompletionJob, account: Account
) -> ChatReply | CompletionReply:
    reply: ChatReply | CompletionReply | None = None
    deadline_s = model.serving.deadline_s if model.serving else 0.0
    async with aclosing(context.engine(model).stream(ChatEngine.counted, job, timings=context.timings)) as counts:
        async for count in counts:
            if not isinstance(count, ChatBatch):
                reply = count
                continue
            # The gate bounds the time until each of them.
            if context.timings.engine > deadline_s:
                raise UPSTREAM_TIMEOUT()
            await account.count(**_quantities(model, count))
    if reply is None:
        raise UPSTREAM_ERROR()
    return reply


async def streamed(
    context: RequestContext,
    model: ChatModel,
    job: J,
    method: Callable[[Any, J], AsyncIterator[ChatBatch]],
) -> AsyncGenerator[ChatBatch, None]:
    """What `method` answers to `job`, batch by batch. Whoever leaves early pays for what was produced until then."""
    first_slice = min(STREAM_SLICE_OUTPUT_TOKENS, job.most_output_tokens(model))
    async with (
        context.service.state.rates.stream(context.caller),
        bill(
            context, model, _estimate(job, model, first_slice), begun=partial(_begun, job, model), is_stream=True
        ) as account,
        aclosing(context.engine(model).stream(method, job, timings=context.timings)) as batches,
    ):
        async for batch in batches:
            await account.progress(**_quantities(model, batch))
            yield batch


def _job(context: RequestContext, model: ChatModel, request: ChatRequest) -> ChatJob:
    # What is refused here starts no engine.
    told(request, model.thinking)
    job = ChatJob(request, context.owner)
    if request.logprobs:
        others = request.top_logprobs or 0
        check_logprobs(job.most_output_tokens(model), others, "top_logprobs" if others else "logprobs")
    return job


def _estimate(job: ChatJob | CompletionJob, model: ChatModel, output_tokens: int) -> dict[str, int]:
    return {"input_tokens": job.most_input_tokens(model), "output_tokens": output_tokens}


def _begun(job: ChatJob | CompletionJob, model: ChatModel) -> dict[str, int]:
    """All of the prompt at its full price: who asks again then finds it in the cache."""
    return {"input_tokens": job.likely_input_tokens(model)}


def _quantities(model: ChatModel, counted: ChatReply | ChatBatch | CompletionReply) -> dict[str, int]:
    """Quantities by unit; together they are all tokens. Cached ones are apart where they have a price of their own."""
    cached = counted.cached_tokens if "cached_input_tokens" in model.price else 0
    used = {"input_tokens": counted.prompt_tokens - cached, "output_tokens": counted.completion_tokens}
    return used | ({"cached_input_tokens": cached} if cached else {})
