"""VllmChat: a chat model in vLLM, which is imported when one is constructed and not before."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

from pydantic import field_validator

from contract.catalog import ChatModel
from contract.chat import schemas
from contract.chat.engine import COUNT_S, ChatBatch, ChatEngine, ChatJob, ChatReply
from contract.chat.reads import ReadJob, ReadReply
from contract.chat.request import ChatRequest
from contract.completions import CompletionJob, CompletionReply
from contract.errors import BUSY, IMAGES_UNSUPPORTED
from contract.tokens import DetokenizeJob, Tokenized, TokenizeJob
from models.chat.reads import Reads
from models.chat.request import engine_fields
from models.imports import Imports
from models.llm import engine, grammars, head
from models.llm.arguments import EngineOptions
from models.options import read
from models.weights.files import need_folder

TEMPLATES = Path(__file__).parent

MAX_BATCHES_PER_S = 700
"""Of all streams together. The way to the ingress carries some 1,400 items a second, and costs CPU for each."""


SERVING = Imports(
    ("vllm.entrypoints.openai.chat_completion.serving", "vllm.entrypoints.openai.models.serving", "xgrammar")
)
"""What answers chats, over what an engine imports."""


class Options(EngineOptions):
    """`serving.options` of a chat model.

    Attributes:
        chat_template: a file of this folder; None for the template that came with the weights.
    """

    chat_template: str | None = None

    @field_validator("chat_template")
    @classmethod
    def _exists(cls, name: str) -> str:
        known = sorted(file.name for file in TEMPLATES.glob("*.jinja"))
        if name not in known:
            raise ValueError(f"there is no template `{name}`; there are {', '.join(f'`{one}`' for one in known)}")
        return name


class VllmChat(ChatEngine):
    """A chat model, loaded. Safe for concurrent calls from one event loop."""

    options_type = Options

    @classmethod
    def imports(cls, model: ChatModel) -> Imports | None:
        return engine.imports(read(model, Options), SERVING)

    def __init__(self, model: ChatModel, path: Path | None) -> None:
        self._model = model
        options = read(model, Options)
        spec = _spec(model, options, need_folder(path, model.id))
        self._engine = engine.start(spec)
        if options.engine.get("hf_overrides", {}).get("head_dtype"):
            head.keep(self._engine)  # as scorers do, which read through this model then

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
        self._reads = Reads(self._engine, model, spec.path, spec.arguments, self._tokens.size)
        self._tokenizing = asyncio.Lock()
        self._streams = 0

    async def complete(self, job: ChatJob, counted: Callable[[ChatBatch], None] | None = None) -> ChatReply:
        """The whole answer. Raises ApiError: 400 if the engine refuses the request, 502 if it fails."""
        from models.chat.serving import error_of

        answer = await self._create(job, stream=False, counted=counted)
        if not isinstance(answer, ChatReply):
            raise error_of(answer, job.request)
        return answer

    async def stream(self, job: ChatJob) -> AsyncGenerator[ChatBatch, None]:
        """The answer in events: the first token alone, then whatever has become ready. Closing it frees the engine.

        Raises:
            ApiError: as `complete`. A refusal comes before the first event, a failure may come between events.
        """
        from vllm.entrypoints.serve.engine.protocol import ErrorResponse

        from models.chat.serving import error_of

        events = await self._create(job, stream=True)
        if isinstance(events, ErrorResponse):
            raise error_of(events, job.request)
        self._streams += 1
        try:
            async with aclosing(events):
                async for batch in events:
                    sent_at = time.monotonic()
                    yield batch
                    await self._pace(sent_at)
        except Exception as failure:
            raise error_of(failure, job.request) from failure
        finally:
            self._streams -= 1

    async def counted(
        self, job: ChatJob | CompletionJob
    ) -> AsyncGenerator[ChatBatch | ChatReply | CompletionReply, None]:
        """What `complete` or `write` answers, after the tokens so far. Closing it frees the engine. Raises as they."""
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
        from models.chat.serving import error_of

        try:
            return await self._completions.write(job, counted)
        except Exception as failure:
            raise error_of(failure, job.request) from failure

    async def write_stream(self, job: CompletionJob) -> AsyncGenerator[ChatBatch, None]:
        """The continued prompts in events. Closing it frees the engine. Raises as `write`, also between events."""
        from models.chat.serving import error_of

        self._streams += 1
        try:
            async with aclosing(self._completions.stream(job)) as batches:
                async for batch in batches:
                    sent_at = time.monotonic()
                    yield batch
                    await self._pace(sent_at)
        except Exception as failure:
            raise error_of(failure, job.request) from failure
        finally:
            self._streams -= 1

    async def tokenize(self, job: TokenizeJob) -> Tokenized:
        """Tokens of a conversation as `complete` would read it, uncut, or of a text. Raises ApiError as `complete`."""
        if job.request is not None:
            ids = await self._rendered(job, job.request)
        else:
            ids = await self._tokens.ids(job.text or "", add_special_tokens=job.add_special_tokens)
        return Tokenized(ids, await self._tokens.strings(ids) if job.with_strings else None)

    async def detokenize(self, job: DetokenizeJob) -> str:
        """The text that the ids spell. Raises INVALID_REQUEST for an id that the vocabulary lacks."""
        self._tokens.check(job.ids, "tokens")
        return await self._tokens.text(job.ids)

    async def read(self, job: ReadJob) -> ReadReply:
        """How likely each label is after its prompt. Raises INVALID_REQUEST, UPSTREAM_ERROR."""
        return await self._reads.read(job)

    async def check_health(self) -> None:
        """Raises if the engine has died, or has work and does not get on with it."""
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
        from models.chat.serving import EngineRequest, error_of, schema_refused

        request = job.request.model_copy(update={"stream": stream})
        self._refuse_images(request)
        try:
            fields = engine_fields(request, job.cache_salt, self._model.thinking)
            engine_request = EngineRequest(model=self._model.id, **fields)
            if counted:
                engine_request.count(counted)
            answer = await self._serving.create_chat_completion(engine_request)
        except grammars.Refused as refusal:
            raise schema_refused(refusal, await self._refused_field(refusal, job)) from refusal
        except grammars.Crowded:
            raise BUSY("too many grammars wait to be compiled; send the request again in a moment") from None
        except Exception as failure:
            raise error_of(failure, request) from failure
        # vLLM answers a cancelled call with an error object; here a cancelled task stays cancelled.
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError
        return answer

    async def _rendered(self, job: TokenizeJob, request: ChatRequest) -> list[int]:
        """The tokens of the prompt of `request`, none of them cut."""
        from vllm.entrypoints.serve.engine.protocol import ErrorResponse

        from models.chat.serving import error_of
        from models.chat.tokens import WholeRequest

        self._refuse_images(request)
        fields = {"add_generation_prompt": job.add_generation_prompt, "add_special_tokens": job.add_special_tokens}
        try:
            whole = WholeRequest(model=self._model.id, **engine_fields(request, thinking=self._model.thinking) | fields)
            # One at a time: chats are made tokens by the same thread, and wait for one of these at most.
            async with self._tokenizing:
                rendered = await self._serving.online_renderer.render_chat(whole, skip_mm_cache=True)
        except Exception as failure:
            raise error_of(failure, request) from failure
        if isinstance(rendered, ErrorResponse):
            raise error_of(rendered, request)
        _, (prompt,) = rendered
        return list(prompt["prompt_token_ids"])

    async def _refused_field(self, refusal: grammars.Refused, job: ChatJob) -> str:
        """The field of the schema that was refused; of several the first that is refused alone, or the dearest."""
        fields = job.request.compiled_schemas()
        kind: grammars.Kind | grammars.Syntax = "PARSE" if refusal.reason == "invalid" else "JSON"
        if refusal.reason in ("invalid", "empty", "slow") and len(fields) > 1:
            specs = [json.dumps(schema) for schema in fields.values()]
            place = await self._grammars.first_refused(kind, specs, job.cache_salt or "")
            if place is not None:
                return list(fields)[place]
        if job.request.structured_outputs:
            return f"structured_outputs.{'regex' if job.request.structured_outputs.regex else 'choice'}"
        return schemas.dearest(fields) if fields else "tools"

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


def _spec(model: ChatModel, options: Options, path: Path) -> engine.EngineSpec:
    parser = {"reasoning_parser": model.reasoning_parser} if model.reasoning_parser else {}
    return engine.EngineSpec(
        path,
        model.context_window,
        options.engine | parser,
        threads=model.serving.threads if model.serving else None,
        in_process=not options.engine_process,
    )
