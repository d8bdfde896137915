"""VllmChat: a chat model in vLLM, which is imported when one is constructed and not before."""

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
from contract.completions import CompletionJob, CompletionReply, CompletionRequest
from contract.errors import BUSY, ApiError
from contract.tokens import DetokenizeJob, Tokenized, TokenizeJob
from models.chat.request import engine_fields, refuse_images
from models.imports import Imports
from models.llm import engine, grammars
from models.llm.arguments import EngineOptions
from models.options import read
from models.weights.files import need_folder

TEMPLATES = Path(__file__).parent

MAX_BATCHES_PER_S = 700
"""Batches of all streams together. The way to the ingress carries some 1,400 items a second, and costs CPU for each."""

SERVING = Imports(
    ("vllm.entrypoints.openai.chat_completion.serving", "vllm.entrypoints.openai.models.serving", "xgrammar")
)
"""The modules that answer chats, beside those of an engine."""


class ChatOptions(EngineOptions):
    """`serving.options` of a chat model.

    Attributes:
        chat_template: a file of this folder; None for the template that came with the weights.
    """

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


class VllmChat(ChatEngine):
    """A chat model, loaded. Safe for concurrent calls from one event loop."""

    options_type = ChatOptions

    @classmethod
    def imports(cls, model: ChatModel) -> Imports | None:
        return engine.imports(read(model, ChatOptions), SERVING)

    def __init__(self, model: ChatModel, path: Path | None) -> None:
        self._model = model
        options = read(model, ChatOptions)
        self._engine = engine.start(_spec(model, options, need_folder(path, model.id)))

        from vllm.tokenizers import cached_tokenizer_from_config

        from models.chat import serving
        from models.chat.completions import Completions
        from models.chat.tokens import TextTokens

        template = (TEMPLATES / options.chat_template).read_text("utf-8") if options.chat_template else None
        self._grammars = grammars.of_engine(self._engine)
        self._serving = serving.ChatServing(self._engine, model, template, self._grammars)
        self._tokens = TextTokens(
            model.id,
            cached_tokenizer_from_config(self._engine.model_config),
            self._engine.model_config.get_vocab_size(),
        )
        self._completions = Completions(self._engine, model, self._tokens)
        self._tokenizing = asyncio.Lock()
        self._streams = 0

    async def complete(self, job: ChatJob, counted: Callable[[ChatBatch], None] | None = None) -> ChatReply:
        """The whole answer. Raises ApiError: 400 if the engine refuses the request, 502 if it fails."""
        from models.chat.errors import error_of

        answer = await self._create(job, stream=False, counted=counted)
        if not isinstance(answer, ChatReply):
            raise error_of(answer, job.request)
        return answer

    def stream(self, job: ChatJob) -> AsyncGenerator[ChatBatch, None]:
        """The answer in events: the first token alone, then whatever has become ready. Closing it frees the engine.

        Raises:
            ApiError: as `complete`. A refusal comes before the first event, a failure may come between events.
        """
        return self._paced(partial(self._events, job), job.request)

    async def counted(
        self, job: ChatJob | CompletionJob
    ) -> AsyncGenerator[ChatBatch | ChatReply | CompletionReply, None]:
        """The tokens so far, then the answer of `complete` or `write`. Closing it frees the engine; raises as they."""
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
        """The continued prompts. Raises ApiError: 400 if the engine refuses the request, 502 if it fails."""
        from models.chat.errors import error_of

        try:
            return await self._completions.write(job, counted)
        except Exception as failure:
            raise error_of(failure, job.request) from failure

    def write_stream(self, job: CompletionJob) -> AsyncGenerator[ChatBatch, None]:
        """The continued prompts in events. Closing it frees the engine. Raises as `write`, also between events."""

        async def events() -> AsyncGenerator[ChatBatch, None]:
            return self._completions.stream(job)

        return self._paced(events, job.request)

    async def tokenize(self, job: TokenizeJob) -> Tokenized:
        """The tokens of a conversation as `complete` reads it, uncut, or of a text. Raises ApiError as `complete`."""
        if job.request is not None:
            from models.chat.tokens import rendered_ids

            refuse_images(job.request, self._model)
            # One at a time: the same thread makes tokens of chats, which so wait for one of these at most.
            async with self._tokenizing:
                ids = await rendered_ids(self._serving.online_renderer, self._model, job, job.request)
        else:
            ids = await self._tokens.ids(job.text or "", add_special_tokens=job.add_special_tokens)
        return Tokenized(ids, await self._tokens.strings(ids) if job.with_strings else None)

    async def detokenize(self, job: DetokenizeJob) -> str:
        """The text that the ids spell. Raises INVALID_REQUEST for an id that the vocabulary lacks."""
        self._tokens.check(job.ids, "tokens")
        return await self._tokens.text(job.ids)

    async def check_health(self) -> None:
        """Raises if the engine has died, or has work and makes no progress."""
        await self._engine.check_health()

    def close(self) -> None:
        """Ends the engine; requests in flight fail with 502."""
        self._grammars.close()
        self._tokens.close()
        self._engine.shutdown()

    @property
    def unfinished(self) -> int:
        """Requests in the engine, running or waiting."""
        return int(self._engine.get_num_unfinished_requests())

    async def _create(self, job: ChatJob, *, stream: bool, counted: Callable[[ChatBatch], None] | None = None) -> Any:
        from models.chat.errors import error_of, refused_field, schema_refused
        from models.chat.serving import EngineRequest

        request = job.request.model_copy(update={"stream": stream})
        refuse_images(request, self._model)
        try:
            fields = engine_fields(request, job.owner, self._model.thinking)
            engine_request = EngineRequest(model=self._model.id, **fields)
            if counted:
                engine_request.count(counted)
            answer = await self._serving.create_chat_completion(engine_request)
        except grammars.Refused as refusal:
            raise schema_refused(refusal, await refused_field(refusal, job, self._grammars)) from refusal
        except grammars.QueueFull:
            raise BUSY("too many grammars wait to be compiled; send the request again shortly") from None
        except Exception as failure:
            raise error_of(failure, request) from failure
        # vLLM answers a cancelled call with an error object; here a cancelled task stays cancelled.
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError
        return answer

    async def _events(self, job: ChatJob) -> AsyncGenerator[ChatBatch, None]:
        from vllm.entrypoints.serve.engine.protocol import ErrorResponse

        from models.chat.errors import error_of

        events = await self._create(job, stream=True)
        if isinstance(events, ErrorResponse):
            raise error_of(events, job.request)
        batches: AsyncGenerator[ChatBatch, None] = events
        return batches

    async def _paced(
        self,
        start: Callable[[], Awaitable[AsyncGenerator[ChatBatch, None]]],
        request: ChatRequest | CompletionRequest,
    ) -> AsyncGenerator[ChatBatch, None]:
        """The batches that `start` gives, no faster than MAX_BATCHES_PER_S; what is ready meanwhile joins the next."""
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


def _spec(model: ChatModel, options: ChatOptions, path: Path) -> engine.EngineSpec:
    parser = {"reasoning_parser": model.reasoning_parser} if model.reasoning_parser else {}
    return engine.EngineSpec(
        path,
        model.context_window,
        options.engine | parser,
        threads=model.serving.threads if model.serving else None,
        in_process=not options.engine_process,
    )
