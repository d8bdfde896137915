"""VllmChat: a chat model behind four calls. vLLM is imported when one is constructed, not before."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

from contract.catalog import ChatModel
from contract.chat.engine import ChatBatch, ChatReply
from contract.chat.request import ChatRequest
from contract.errors import IMAGES_UNSUPPORTED
from models.chat.request import engine_fields

MAX_BATCHES_PER_S = 700
"""Of all streams together. The way to the ingress carries some 1,400 items a second, and costs CPU for each."""


class VllmChat:
    """A chat model, loaded. Safe for concurrent calls from one event loop.

    Args:
        model: stanza; `serving.options` are engine arguments of vLLM, `engine_process` puts the engine core into
            processes of its own (GPUs), `chat_template` names a template beside this file.
        path: folder of the weights.
    """

    def __init__(self, model: ChatModel, path: Path) -> None:
        from models.llm import engine

        self._model = model
        self._engine = engine.start(model, path)

        from models.chat import serving

        self._serving = serving.ChatServing(self._engine, model, engine.chat_template(model))
        self._streams = 0

    async def complete(self, request: ChatRequest, cache_salt: str | None = None) -> ChatReply:
        """The whole answer. Raises ApiError: 400 if the engine refuses the request, 502 if it fails."""
        from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionResponse

        from models.chat.serving import error_of, reply_body

        answer = await self._create(request.model_copy(update={"stream": False}), cache_salt)
        if not isinstance(answer, ChatCompletionResponse):
            raise error_of(answer, request)
        tokens = answer.usage
        return ChatReply(reply_body(answer), tokens.prompt_tokens, tokens.completion_tokens or 0)

    async def stream(self, request: ChatRequest, cache_salt: str | None = None) -> AsyncIterator[ChatBatch]:
        """The answer in events: the first token alone, then whatever has become ready. Closing it frees the engine.

        Raises:
            ApiError: as `complete`. A refusal comes before the first event, a failure may come between events.
        """
        from vllm.entrypoints.serve.engine.protocol import ErrorResponse

        from models.chat.serving import error_of

        events: Any = await self._create(request.model_copy(update={"stream": True}), cache_salt)
        if isinstance(events, ErrorResponse):
            raise error_of(events, request)
        self._streams += 1
        try:
            async with aclosing(events):
                async for batch in events:
                    sent_at = time.monotonic()
                    yield batch
                    await self._pace(sent_at)
        except Exception as failure:
            raise error_of(failure, request) from failure
        finally:
            self._streams -= 1

    async def check_health(self) -> None:
        """Raises if the engine has died, or has work and does not get on with it."""
        await self._engine.check_health()

    def close(self) -> None:
        """Ends the engine; requests in flight fail with 502."""
        self._engine.shutdown()

    @property
    def unfinished(self) -> int:
        """Requests in the engine, running or waiting."""
        return int(self._engine.get_num_unfinished_requests())

    async def _create(self, request: ChatRequest, cache_salt: str | None) -> Any:
        from models.chat.serving import EngineRequest, error_of

        self._refuse_images(request)
        try:
            engine_request = EngineRequest(model=self._model.id, **engine_fields(request, cache_salt))
            answer = await self._serving.create_chat_completion(engine_request)
        except Exception as failure:
            raise error_of(failure, request) from failure
        # vLLM answers a cancelled call with an error object; here a cancelled task stays cancelled.
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError
        return answer

    def _refuse_images(self, request: ChatRequest) -> None:
        if self._model.vision:
            return
        for index, message in enumerate(request.messages):
            if message.images:
                raise IMAGES_UNSUPPORTED(
                    f"model `{self._model.id}` reads no images; message {index} has one",
                    param=f"messages.{index}.content",
                )

    async def _pace(self, sent_at: float) -> None:
        """Waits where batches would come faster than they should; what is ready meanwhile goes into the next one."""
        wait_s = sent_at + self._streams / MAX_BATCHES_PER_S - time.monotonic()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
