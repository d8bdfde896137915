"""An LLM replica. Spec 4, POST /chat/completions."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from ray import serve

from contract.chat.engine import ChatBatch, ChatEngine, ChatJob, ChatReply
from contract.completions import CompletionJob, CompletionReply
from contract.tokens import DetokenizeJob, Tokenized, TokenizeJob
from deployments.replica import Replica


@serve.deployment
class Chat(Replica[ChatEngine]):
    """One LLM of the catalogue. Its methods are those of `ChatEngine`."""

    async def complete(self, job: ChatJob) -> ChatReply:
        return await self.engine.complete(job)

    async def stream(self, job: ChatJob) -> AsyncGenerator[ChatBatch, None]:
        async with aclosing(self.engine.stream(job)) as batches:
            async for batch in batches:
                yield batch

    async def write(self, job: CompletionJob) -> CompletionReply:
        return await self.engine.write(job)

    async def write_stream(self, job: CompletionJob) -> AsyncGenerator[ChatBatch, None]:
        async with aclosing(self.engine.write_stream(job)) as batches:
            async for batch in batches:
                yield batch

    async def counted(
        self, job: ChatJob | CompletionJob
    ) -> AsyncGenerator[ChatBatch | ChatReply | CompletionReply, None]:
        async with aclosing(self.engine.counted(job)) as counts:
            async for count in counts:
                yield count

    async def tokenize(self, job: TokenizeJob) -> Tokenized:
        return await self.engine.tokenize(job)

    async def detokenize(self, job: DetokenizeJob) -> str:
        return await self.engine.detokenize(job)
