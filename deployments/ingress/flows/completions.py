"""Continuing prompts as they stand, billed by tokens like a chat."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import TypeVar

from contract.catalog import ChatModel
from contract.chat.engine import ChatBatch, ChatEngine
from contract.completions import CompletionJob, CompletionReply, CompletionRequest
from deployments.ingress.context import RequestContext
from deployments.ingress.flows import chat

R = TypeVar("R")


async def write(
    context: RequestContext, model: ChatModel, request: CompletionRequest, render: Callable[[CompletionReply], R]
) -> R:
    """All answers, whole, as `render` makes them of the engine's; what that raises is not billed."""
    return await chat.whole(context, model, CompletionJob(request, context.owner), ChatEngine.write, render)


def stream(context: RequestContext, model: ChatModel, request: CompletionRequest) -> AsyncGenerator[ChatBatch, None]:
    """The answers as they are made. Whoever leaves early pays for what was produced until then."""
    return chat.streamed(context, model, CompletionJob(request, context.owner), ChatEngine.write_stream)
