"""Continuing prompts as they stand, billed by tokens like a chat."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from contract.catalog import ChatModel
from contract.chat.engine import ChatBatch, ChatEngine
from contract.completions import CompletionJob, CompletionReply, CompletionRequest
from contract.limits import STREAM_SLICE_OUTPUT_TOKENS
from deployments.ingress.billing import bill
from deployments.ingress.context import RequestContext
from deployments.ingress.flows.chat import quantities


async def write(context: RequestContext, model: ChatModel, request: CompletionRequest) -> CompletionReply:
    """All answers, whole."""
    job = CompletionJob(request, context.cache_salt)
    async with bill(context, model, _estimate(job, model, job.most_output_tokens(model))) as account:
        reply = await context.engine(model).call(ChatEngine.write, job, timings=context.timings)
        await account.settle(**quantities(model, reply))
    return reply


async def stream(
    context: RequestContext, model: ChatModel, request: CompletionRequest
) -> AsyncGenerator[ChatBatch, None]:
    """The answers as they are made. Whoever leaves early pays for what was produced until then."""
    job = CompletionJob(request, context.cache_salt)
    first_slice = min(STREAM_SLICE_OUTPUT_TOKENS, job.most_output_tokens(model))
    async with (
        context.service.state.rates.stream(context.caller),
        bill(context, model, _estimate(job, model, first_slice)) as account,
        aclosing(context.engine(model).stream(ChatEngine.write_stream, job, timings=context.timings)) as batches,
    ):
        async for batch in batches:
            await account.progress(**quantities(model, batch))
            yield batch


def _estimate(job: CompletionJob, model: ChatModel, output_tokens: int) -> dict[str, int]:
    return {"input_tokens": job.most_input_tokens(model), "output_tokens": output_tokens}
