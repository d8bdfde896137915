"""Counting and making tokens. It costs nothing, but may start an engine as chat does: not for who may spend nothing."""

from __future__ import annotations

from contract.catalog import ChatModel
from contract.chat.engine import ChatEngine
from contract.chat.request import ChatRequest
from contract.chat.thinking import reasoning_settings
from contract.errors import CONTEXT_LENGTH_EXCEEDED
from contract.tokens import DetokenizeJob, Tokenized, TokenizeJob, check_length, reply_bytes
from deployments.ingress.context import RequestContext


async def count(context: RequestContext, model: ChatModel, request: ChatRequest) -> int:
    """Tokens of the prompt that `request` is to `model`, those beyond its window included. Raises as `tokenize`."""
    return len((await tokenize(context, model, TokenizeJob(request))).ids)


async def refuse_longer(context: RequestContext, model: ChatModel, request: ChatRequest) -> None:
    """Raises CONTEXT_LENGTH_EXCEEDED where the prompt would be cut, and what `count` raises."""
    length = await count(context, model, request)
    if length >= model.context_window:
        raise CONTEXT_LENGTH_EXCEEDED(
            f"the input is {length} tokens, and `{model.id}` has {model.context_window} for input and answer together",
            param="messages",
        )


async def tokenize(context: RequestContext, model: ChatModel, job: TokenizeJob) -> Tokenized:
    """The tokens of a text or of a conversation.

    Raises INVALID_REQUEST for too much text, TOO_MUCH_AT_ONCE, and a spend limit.
    """
    check_length(job, model)
    if job.request:
        reasoning_settings(job.request, model.thinking)  # what it refuses starts no engine
    await context.service.state.ledger.require_room(context.caller)
    with context.service.budgets.body(context.caller) as hold:
        hold(reply_bytes(job))
        return await context.engine(model).call(ChatEngine.tokenize, job, timings=context.timings)


async def detokenize(context: RequestContext, model: ChatModel, job: DetokenizeJob) -> str:
    """The text of some tokens. Raises INVALID_REQUEST for an id that the vocabulary lacks, and a spend limit."""
    await context.service.state.ledger.require_room(context.caller)
    return await context.engine(model).call(ChatEngine.detokenize, job, timings=context.timings)
