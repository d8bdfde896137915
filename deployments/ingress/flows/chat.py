"""Answering a conversation, billed by tokens. Spec 4 (POST /chat/completions)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TypeVar

from contract.catalog import ChatModel
from contract.chat.engine import ChatBatch, ChatEngine, ChatJob, ChatReply
from contract.chat.request import ChatRequest
from contract.chat.thinking import told
from contract.completions import CompletionReply
from contract.limits import STREAM_SLICE_OUTPUT_TOKENS
from deployments.ingress.billing import bill
from deployments.ingress.context import RequestContext

R = TypeVar("R")


async def complete(
    context: RequestContext, model: ChatModel, request: ChatRequest, render: Callable[[ChatReply], R]
) -> R:
    """The whole answer, as `render` makes it of the engine's; what that raises is not billed."""
    told(request, model.thinking)  # what it refuses starts no engine
    job = ChatJob(request, context.cache_salt)
    async with bill(context, model, _estimate(job, model, job.most_output_tokens(model))) as account:
        reply = await context.engine(model).call(ChatEngine.complete, job, timings=context.timings)
        rendered = render(reply)
        await account.settle(**quantities(model, reply))
    return rendered


async def stream(context: RequestContext, model: ChatModel, request: ChatRequest) -> AsyncGenerator[ChatBatch, None]:
    """The answer as it is made. Whoever leaves early pays for what was produced until then."""
    told(request, model.thinking)
    job = ChatJob(request, context.cache_salt)
    first_slice = min(STREAM_SLICE_OUTPUT_TOKENS, job.most_output_tokens(model))
    async with (
        context.service.state.rates.stream(context.caller),
        bill(context, model, _estimate(job, model, first_slice)) as account,
        aclosing(context.engine(model).stream(ChatEngine.stream, job, timings=context.timings)) as batches,
    ):
        async for batch in batches:
            await account.progress(**quantities(model, batch))
            yield batch


def _estimate(job: ChatJob, model: ChatModel, output_tokens: int) -> dict[str, int]:
    return {"input_tokens": job.most_input_tokens(model), "output_tokens": output_tokens}


def quantities(model: ChatModel, counted: ChatReply | ChatBatch | CompletionReply) -> dict[str, int]:
    """Quantities by unit; together they are all tokens. Cached ones are apart where they have a price of their own."""
    cached = counted.cached_tokens if "cached_input_tokens" in model.price else 0
    used = {"input_tokens": counted.prompt_tokens - cached, "output_tokens": counted.completion_tokens}
    return used | ({"cached_input_tokens": cached} if cached else {})
