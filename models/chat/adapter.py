"""VllmChat, a `ChatEngine` over vLLM, which is imported when one is constructed and not before."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import field_validator

from contract.catalog import ChatModel
from contract.chat.engine import COUNT_S, ChatBatch, ChatEngine, ChatJob, ChatReply
from contract.chat.request import ChatRequest
from contract.chat.thinking import check_fits_model
from contract.completions import CompletionJob, CompletionReply, CompletionRequest
from contract.errors import BUSY, ApiError
from contract.tokens import DetokenizeJob, Tokenized, TokenizeJob
from models import Imports
from models.chat.request import engine_fields
from models.llm import adapter, engine, grammars
from models.llm.arguments import EngineOptions
from models.options import read
from models.weights.files import need_folder

TEMPLATES = Path(__file__).parent

MAX_BATCHES_PER_S = 700
"""Batches of all streams together. The way to the ingress carries some 1,400 items a second, and costs CPU for each."""

STEP_TOKENS = 128
"""Prompt tokens that a step on a CPU reads at most: clients that are being answered or have just asked wait for it.

With two threads and AVX2 a step of Qwen 2.5 0.5B takes 0.8 s at most, and 2.7 s with 512; 1,500 tokens take 7.5 and
7.2 s. SmolLM2 135M: 0.5 and 1.5 s, 4.1 and 3.9 s.
"""

SERVING = Imports(
    ("vllm.entrypoints.openai.chat_completion.serving", "vllm.entrypoints.openai.models.serving", "xgrammar")
)
"""The modules that answer chats, beside those of an engine."""


class ChatOptions(EngineOptions):
    """Options of a chat model. `chat_template` is a file of this folder; None is the template of the weights."""

    chat_template: str | None = None

    @field_validator("chat_template")
    @classmethod
    def _exists(cls, name: str) -> str:
        templates = sorted(file.name for file in TEMPLATES.glob("*.jinja"))
        if name not in templates:
            raise ValueError(
                f"there is no template `{name}`; the templates are {', '.join(f'`{name}`' for name in templates)}"
            )
        return name


class VllmChat(adapter.EngineAdapter, ChatEngine):
    """A chat model, loaded. Safe for concurrent calls from one event loop."""

    options_type = ChatOptions
    libraries = SERVING

    def __init__(self, model: ChatModel, path: Path | None) -> None:
        self._model = model
        folder, options = need_folder(path, model.id), read(model, ChatOptions)
        parser = {"reasoning_parser": model.reasoning_parser} if model.reasoning_parser else {}
        # Owners take turns in this process, as its core says.
        order: dict[str, Any] = {} if options.engine_process else {"scheduling_policy": "priority"}
        if order and not model.vision:
            order["max_num_batched_tokens"] = STEP_TOKENS + options.engine.get("max_num_seqs", STEP_TOKENS)
        spec = adapter.spec_of(model, folder, model.context_window, options, order | options.engine | parser)
        self.engine = engine.start(spec)

        from vllm.tokenizers import cached_tokenizer_from_config

        from models.chat import serving
        from models.chat.completions import Completions
        from models.chat.tokens import TextTokens

        template = (TEMPLATES / options.chat_template).read_text("utf-8") if options.chat_template else None
        self._grammars = grammars.of_engine(self.engine)
        self._serving = serving.ChatServing(self.engine, model, template, self._grammars)
        self._tokens = TextTokens(
            model.id, cached_tokenizer_from_config(self.engine.model_config), self.engine.model_config.get_vocab_size()
        )
        self._completions = Completions(self.engine, model, self._tokens)
        self._tokenizing = asyncio.Lock()
        self._streams = 0

    async def complete(self, job: ChatJob, counted: Callable[[ChatBatch], None] | None = None) -> ChatReply:
        """The whole answer. Raises ApiError: 400 if the engine refuses the request, 502 if it fails."""
        answer: ChatReply = await self._create(job, stream=False, counted=counted)
        return answer

    def stream(self, job: ChatJob) -> AsyncGenerator[ChatBatch, None]:
        """The first token alone, then whatever has become ready.

        Raises as `complete`: a refusal before the first event, a failure also between events.
        """
        return self._paced(partial(self._create, job, stream=True), job.request)

    async def counted(
        self, job: ChatJob | CompletionJob
    ) -> AsyncGenerator[ChatBatch | ChatReply | CompletionReply, None]:
        so_far: deque[ChatBatch] = deque(maxlen=1)
        answer = self.complete(job, so_far.append) if isinstance(job, ChatJob) else self.write(job, so_far.append)
        answering: asyncio.Task[ChatReply | CompletionReply] = asyncio.ensure_future(answer)
        try:
            while not (await asyncio.wait({answering}, timeout=COUNT_S))[0]:
                if so_far:
                    yield so_far.pop()
            yield answering.result()
        finally:
            answering.cancel()
            await asyncio.wait({answering})

    async def write(self, job: CompletionJob, counted: Callable[[ChatBatch], None] | None = None) -> CompletionReply:
        from models.chat.errors import error_of

        try:
            return await self._completions.write(job, counted)
        except Exception as failure:
            raise error_of(failure, job.request) from failure

    def write_stream(self, job: CompletionJob) -> AsyncGenerator[ChatBatch, None]:
        async def events() -> AsyncGenerator[ChatBatch, None]:
            return self._completions.stream(job)

        return self._paced(events, job.request)

    async def tokenize(self, job: TokenizeJob) -> Tokenized:
        if job.request is not None:
            from models.chat.tokens import rendered_ids

            check_fits_model(job.request, self._model)
            # One at a time: the same thread makes tokens of chats, which so wait for one of these at most.
            async with self._tokenizing:
                ids = await rendered_ids(self._serving.online_renderer, self._model, job, job.request)
        else:
            ids = await self._tokens.ids(job.text or "", add_special_tokens=job.add_special_tokens)
        return Tokenized(ids, await self._tokens.strings(ids) if job.with_strings else None)

    async def detokenize(self, job: DetokenizeJob) -> str:
        self._tokens.check(job.ids, "tokens")
        return await self._tokens.text(job.ids)

    def close(self) -> None:
        self._grammars.close()
        self._tokens.close()
        super().close()

    async def _create(self, job: ChatJob, *, stream: bool, counted: Callable[[ChatBatch], None] | None = None) -> Any:
        """A ChatReply, or the events of a stream. Raises ApiError."""
        from vllm.entrypoints.serve.engine.protocol import ErrorResponse

        from models.chat.errors import error_of, schema_refused
        from models.chat.serving import EngineRequest

        request = job.request.model_copy(update={"stream": stream})
        check_fits_model(request, self._model)
        try:
            fields = engine_fields(request, job.owner, self._model.thinking)
            engine_request = EngineRequest(model=self._model.id, **fields)
            if counted:
                engine_request.count(counted)
            answer = await self._serving.create_chat_completion(engine_request)
        except grammars.Refused as refusal:
            raise await schema_refused(refusal, job, self._grammars) from refusal
        except grammars.QueueFull:
            raise BUSY("too many grammars wait to be compiled; send the request again shortly") from None
        except Exception as failure:
            raise error_of(failure, request) from failure
        # vLLM answers a cancelled call with an error object; here a cancelled task stays cancelled.
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError
        if isinstance(answer, ErrorResponse):
            raise error_of(answer, request)
        return answer

    async def _paced(
        self, start: Callable[[], Awaitable[AsyncGenerator[ChatBatch, None]]], request: ChatRequest | CompletionRequest
    ) -> AsyncGenerator[ChatBatch, None]:
        """The batches that `start` gives, no faster than MAX_BATCHES_PER_S.

        vLLM joins tokens that are ready meanwhile to the next one.
        """
        from models.chat.errors import error_of

        try:
            batches = await start()
            self._streams += 1
            try:
                async with aclosing(batches):
                    async for batch in batches:
                        sent_at = time.monotonic()
                        yield batch
                        wait_s = sent_at + self._streams / MAX_BATCHES_PER_S - time.monotonic()
                        if wait_s > 0:
                            await asyncio.sleep(wait_s)
            finally:
                self._streams -= 1
        except ApiError:
            raise
        except Exception as failure:
            raise error_of(failure, request) from failure
