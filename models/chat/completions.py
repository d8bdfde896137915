"""Prompts that are continued as they stand, by vLLM's engine itself: no chat template, no parser. Needs vLLM.

Completions.write, .stream
  |- _prepared()   each prompt as token ids that fit, or the 400 that says why not
  |- _outputs()    what the engine makes of them, a few sequences at a time
  `- ChoiceBuilder the same as choices, and the token counts      models.chat.choices
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from vllm.inputs import tokens_input
from vllm.outputs import RequestOutput
from vllm.sampling_params import RequestOutputKind, SamplingParams
from vllm.utils.async_utils import merge_async_iterators
from vllm.v1.engine.async_llm import AsyncLLM

from contract.base import Text
from contract.catalog import ChatModel
from contract.chat import engine
from contract.chat.engine import ChatBatch
from contract.completions import (
    SCORED_PROMPT_TOKENS,
    CompletionChoice,
    CompletionJob,
    CompletionReply,
    CompletionRequest,
)
from contract.errors import INVALID_REQUEST, UPSTREAM_ERROR, ApiError
from contract.limits import CHARS_PER_TOKEN
from models.chat.choices import ChoiceBuilder, CompletionPrompt, whole
from models.chat.request import answer_reserve, drawing
from models.chat.tokens import TextTokens

SEQUENCES_AT_ONCE = 8
"""Sequences of one request in the engine, as many as one chat may have: a hundred prompts do not fill it."""

COPIED = ("min_p", "repetition_penalty", "seed", "stop", "presence_penalty", "frequency_penalty")
"""Fields that have the same name and meaning in vLLM's sampling parameters; None is left out."""


class Completions:
    """Continues prompts with one engine. Safe for concurrent calls from one event loop."""

    def __init__(self, engine: AsyncLLM, model: ChatModel, tokens: TextTokens) -> None:
        self._engine, self._model, self._tokens = engine, model, tokens
        fill_in = model.fill_in
        self._frame = tokens.known((fill_in.before, fill_in.between, fill_in.after)) if fill_in else None

    async def write(self, job: CompletionJob, counted: Callable[[ChatBatch], None] | None = None) -> CompletionReply:
        """All answers, whole; `counted` gets the tokens so far. Raises INVALID_REQUEST, UPSTREAM_ERROR."""
        builder = await self._begin(job)
        pieces: list[CompletionChoice] = []
        # What is counted comes piece by piece, and so do several answers: each says what it found cached.
        in_pieces = counted or job.request.answers > 1
        kind = RequestOutputKind.DELTA if in_pieces else RequestOutputKind.FINAL_ONLY
        async with aclosing(self._outputs(job, builder, kind)) as outputs:
            async for index, output in outputs:
                pieces += builder.choices(index, output)
                if counted:
                    counted(builder.count())
        usage = builder.usage()
        body: Any = builder.head | {"choices": whole(pieces), "usage": usage}
        return CompletionReply(
            body, usage["prompt_tokens"], usage["completion_tokens"], builder.cached_tokens, builder.cut_tokens
        )

    async def stream(self, job: CompletionJob) -> AsyncGenerator[ChatBatch, None]:
        """The answers in events, side by side. Closing it frees the engine. Raises as `write`."""
        builder = await self._begin(job)
        async with aclosing(self._outputs(job, builder, RequestOutputKind.DELTA)) as outputs:
            async for index, output in outputs:
                if batch := builder.batch(index, output):
                    yield batch
        yield builder.last_batch()

    async def _begin(self, job: CompletionJob) -> ChoiceBuilder:
        prompts = [await self._prepared(job.request, prompt) for prompt in job.request.prompt]
        check_logprobs(job.request, prompts)
        head = {
            "id": f"cmpl-{secrets.token_hex(16)}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": self._model.id,
        }
        return ChoiceBuilder(job.request, head, prompts)

    async def _outputs(
        self, job: CompletionJob, builder: ChoiceBuilder, kind: RequestOutputKind
    ) -> AsyncGenerator[tuple[int, RequestOutput], None]:
        """Yields the outputs of the engine for each prompt, with its number. Raises UPSTREAM_ERROR."""
        at_once = max(1, SEQUENCES_AT_ONCE // job.request.answers)
        for start in range(0, len(builder.prompts), at_once):
            running: list[AsyncGenerator[RequestOutput, None]] = [
                self._engine.generate(
                    tokens_input(prompt.ids, cache_salt=job.owner or None),
                    sampling(job.request, prompt, kind),
                    f"{builder.head['id']}-{number}",
                )
                for number, prompt in enumerate(builder.prompts[start : start + at_once], start)
            ]
            async with aclosing(merge_async_iterators(*running)) as outputs:
                async for index, output in outputs:
                    if any(part.finish_reason == "error" for part in output.outputs):
                        raise UPSTREAM_ERROR()
                    yield start + index, output

    async def _prepared(self, request: CompletionRequest, prompt: Text) -> CompletionPrompt:
        """`prompt` as ids that fit the window. Raises INVALID_REQUEST."""
        window = self._model.context_window
        ids, text, lost = await self._ids(prompt, window)
        before, after = await self._around(request.suffix)
        free = window - len(before) - len(after)
        keep = free - (answer_reserve(request.budget, window) if len(ids) >= free else 0)
        if keep < 1:
            raise _too_long(window)
        if request.echo and (lost or len(ids) >= free):
            raise INVALID_REQUEST(
                f"with `echo` a prompt is not truncated; one has {len(ids) + lost} tokens, but at most {free - 1} fit `"
                f"{self._model.id}`",
                param="prompt",
            )
        cut = max(0, len(ids) - keep)
        whole = [*before, *self._cut(ids, cut), *after]
        if request.echo and text is None:
            text = await self._tokens.text(ids)
        first = await self._tokens.text(whole[:1]) if request.echo and request.logprobs is not None else ""
        return CompletionPrompt(whole, min(request.budget, window - len(whole)), cut + lost, text or "", first)

    async def _ids(self, prompt: Text, window: int) -> tuple[list[int], str | None, int]:
        """Token ids of `prompt`, its text where it was one, and how many tokens are lost at its top, at least."""
        if not isinstance(prompt, str):
            self._tokens.check(prompt, "prompt")
            return list(prompt), None, 0
        surplus = max(0, len(prompt) - window * CHARS_PER_TOKEN)
        ids = await self._tokens.ids(prompt[surplus:], add_special_tokens=True)
        return ids, prompt, -(-surplus // CHARS_PER_TOKEN)

    async def _around(self, suffix: str | None) -> tuple[list[int], list[int]]:
        if suffix is None:
            return [], []
        assert self._frame  # else `check_suffix` has refused it
        if len(suffix) > self._model.context_window * CHARS_PER_TOKEN:
            raise _too_long(self._model.context_window)
        before, between, after = self._frame
        return [before], [between, *await self._tokens.ids(suffix, add_special_tokens=False), after]

    def _cut(self, ids: list[int], surplus: int) -> list[int]:
        """`ids` without `surplus` at the top. A begin-of-text token stays: some models are lost without it."""
        if not surplus:
            return ids
        start = ids[:1] if ids[0] == self._tokens.begin else []
        return start + ids[surplus + len(start) :]


def sampling(request: CompletionRequest, prompt: CompletionPrompt, kind: RequestOutputKind) -> SamplingParams:
    """VLLM's parameters: these fields and no others."""
    fields = {name: value for name in COPIED if (value := getattr(request, name)) is not None}
    return SamplingParams(
        n=request.answers,
        # The engine computes nothing without an answer: where none is wanted, one token is made and left out.
        max_tokens=max(1, prompt.budget),
        logprobs=request.logprobs,
        prompt_logprobs=request.logprobs if request.echo else None,
        output_kind=kind,
        **(fields | drawing(request, request.answers)),
    )


def _too_long(window: int) -> ApiError:
    return INVALID_REQUEST(f"`suffix` fills the whole window of {window} tokens; shorten it", param="suffix")


def check_logprobs(request: CompletionRequest, prompts: list[CompletionPrompt]) -> None:
    """Raises INVALID_REQUEST where more logprobs are wanted than one reply holds."""
    if request.logprobs is None:
        return
    longest = max(len(prompt.ids) for prompt in prompts)
    if request.echo and longest > SCORED_PROMPT_TOKENS:
        raise INVALID_REQUEST(
            f"a prompt has {longest} tokens; with `echo` and `logprobs` it may have at most {SCORED_PROMPT_TOKENS}",
            param="prompt",
        )
    most = request.answers * sum(prompt.budget + (len(prompt.ids) if request.echo else 0) for prompt in prompts)
    engine.check_logprobs(most, request.logprobs, "logprobs")
