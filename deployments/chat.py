"""An LLM replica. Spec 4, POST /chat/completions."""

from __future__ import annotations

from collections.abc import AsyncIterator

from ray import serve

from contract.chat.engine import ChatBatch, ChatReply
from contract.chat.request import ChatRequest
from deployments.replica import Replica


@serve.deployment
class Chat(Replica):
    """One LLM of the catalogue."""

    async def complete(self, request: ChatRequest, cache_salt: str | None = None) -> ChatReply:
        """The whole answer. Raises INVALID_REQUEST for what only the engine can judge."""
        reply: ChatReply = await self.adapter.complete(request, cache_salt)
        return reply

    async def stream(self, request: ChatRequest, cache_salt: str | None = None) -> AsyncIterator[ChatBatch]:
        """The answer as groups of ready events; leaving the iteration frees the engine."""
        async for batch in self.adapter.stream(request, cache_salt):
            yield batch
