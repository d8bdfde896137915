"""vLLM's chat serving (templates, tools, reasoning, schemas) with our event stream and our cut.

Imported where an engine has been started: it needs vLLM.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial
from typing import Any, cast, get_args

from pydantic import PrivateAttr
from vllm.config import ModelConfig
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.models.protocol import BaseModelPath
from vllm.entrypoints.openai.models.serving import OpenAIServingModels
from vllm.entrypoints.serve.engine.protocol import ErrorResponse
from vllm.outputs import CompletionOutput, RequestOutput
from vllm.renderers import TokenizeParams
from vllm.sampling_params import RequestOutputKind, SamplingParams, StructuredOutputsParams
from vllm.tokenizers import TokenizerLike
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.structured_output.backend_types import StructuredOutputOptions
from vllm.v1.structured_output.request import get_structured_output_key

from contract.catalog import ChatModel
from contract.chat.engine import ChatBatch, ChatReply
from contract.chat.usage import usage_of
from models.chat.events import Cached, Choice, EventStream, reply_body, stop_of
from models.chat.request import answer_reserve
from models.chat.structures import JSON_KINDS, with_short_gaps
from models.chat.tools import joined_calls
from models.chat.turns import TurnRenderer, sentinels_for
from models.llm.grammars import Grammars, Kind, Refused
from models.llm.vllm_internals.serving import Cut, CutAtTop, OpenServingChat

Counted = Callable[[ChatBatch], None]
"""A callback that gets the tokens of a whole answer so far, as a batch without events."""


class EngineRequest(ChatCompletionRequest):
    """vLLM's request, built from `engine_fields` only. It is cut where it is too long, and not refused.

    Attributes:
        custom_tools: names of the functions that are custom tools to the client.
    """

    custom_tools: frozenset[str] = frozenset()

    _cut: Cut = PrivateAttr(default_factory=Cut)
    _counted: Counted | None = PrivateAttr(None)

    def count(self, counted: Counted) -> None:
        """Makes `counted` get each token of a whole answer."""
        self._counted = counted

    @property
    def cut_tokens(self) -> int:
        """Tokens that were cut from the top of the input, once it has become tokens."""
        return self._cut.tokens

    def to_sampling_params(self, max_tokens: int, default_sampling_params: dict[str, Any]) -> SamplingParams:
        """Works as vLLM's; several answers, or one that is counted, come piece by piece, with the cached tokens."""
        params = super().to_sampling_params(max_tokens, default_sampling_params)
        if params.n > 1 or self._counted:
            params.output_kind = RequestOutputKind.DELTA
        return params

    def build_tok_params(self, model_config: ModelConfig) -> TokenizeParams:
        window = model_config.max_model_len
        return CutAtTop(
            max_total_tokens=window,
            max_output_tokens=min(self.max_completion_tokens or 0, window),
            truncate_prompt_tokens=-1,
            truncation_side="left",
            add_special_tokens=self.add_special_tokens,
            reserve=answer_reserve(self.max_completion_tokens, window),
            cut=self._cut,
        )


def _template_of_tokenizer(engine: AsyncLLM) -> str | None:
    """Template that vLLM would take where none is named, or None to let vLLM search.

    Its search reads the whole tokenizer once more, for a processor that a model of text alone does not have.
    """
    template = getattr(engine.renderer.tokenizer, "chat_template", None)
    return template if isinstance(template, str) and not engine.model_config.is_multimodal_model else None


class ChatServing(OpenServingChat):
    """`OpenAIServingChat` with streams of `ChatBatch`es, which raise where vLLM's write an error event."""

    def __init__(self, engine: AsyncLLM, model: ChatModel, template: str | None, grammars: Grammars) -> None:
        shared: dict[str, Any] = {
            "request_logger": None,
            "chat_template": template or _template_of_tokenizer(engine),
            "chat_template_content_format": "auto",
            "enable_auto_tools": model.tool_parser is not None,
            "tool_parser": model.tool_parser,
            "reasoning_parser": model.reasoning_parser or "",
        }
        renderer = TurnRenderer(
            engine.model_config, engine.renderer, sentinels_for(engine.renderer.tokenizer), **shared
        )
        renderer.warmup()
        names = OpenAIServingModels(engine, [BaseModelPath(name=model.id, model_path=model.id)])
        super().__init__(engine, names, "assistant", online_renderer=renderer, **shared)
        self._counts_reasoning = bool(model.reasoning_parser)
        self._grammars = grammars

    async def render_chat_request(self, request: ChatCompletionRequest) -> Any:
        """Works as vLLM's; then the grammar that the engine would compile for `request` is checked.

        Raises Refused and QueueFull of `models.llm.grammars`.
        """
        rendered = await super().render_chat_request(request)
        structure = request.extract_structured_outputs()
        if isinstance(rendered, ErrorResponse) or structure is None or structure.all_constraints_none():
            return rendered
        kind, spec = get_structured_output_key(structure)
        if kind in JSON_KINDS:
            kind, spec = StructuredOutputOptions.STRUCTURAL_TAG, with_short_gaps(kind, spec)
            request.structured_outputs = StructuredOutputsParams(structural_tag=spec)
            request.response_format = None  # it is in the tag now
        if kind.name not in get_args(Kind):
            raise Refused("invalid", f"this model needs a grammar of another kind ({kind.name.lower()})")
        grammar = await self._grammars.check(cast(Kind, kind.name), spec, request.cache_salt or "")
        if grammar:
            request.structured_outputs = StructuredOutputsParams(grammar=grammar)
        return rendered

    async def chat_completion_full_generator(
        self,
        request: ChatCompletionRequest,
        result_generator: AsyncGenerator[RequestOutput, None],
        *arguments: Any,
        **options: Any,
    ) -> ChatReply | ErrorResponse:
        """Returns our reply; else as vLLM's."""
        cached, ours, results = Cached(), cast(EngineRequest, request), list[RequestOutput]()
        answer = await super().chat_completion_full_generator(
            request, whole(result_generator, cached, ours._counted, results), *arguments, **options
        )
        if isinstance(answer, ErrorResponse):
            return answer
        details = answer.usage.completion_tokens_details
        usage = usage_of(
            answer.usage.prompt_tokens,
            answer.usage.completion_tokens or 0,
            cached_tokens=cached.tokens,
            reasoning_tokens=details.reasoning_tokens if details else 0,
            cut_tokens=ours.cut_tokens,
        )
        body = reply_body(answer, usage, ours.custom_tools)
        for choice, output in zip(body["choices"], results[0].outputs, strict=True):
            if request.tools and choice["finish_reason"] == "length" and "tool_calls" not in choice["message"]:
                choice["message"] |= self._cut_message(ours, output, results[0])
        tokens = usage["prompt_tokens"], usage["completion_tokens"]
        stop_sequence = next((stop_of(choice.stop_reason) for choice in answer.choices), None)
        return ChatReply(body, *tokens, cached.tokens, ours.cut_tokens, stop_sequence)

    def _cut_message(self, request: EngineRequest, output: CompletionOutput, result: RequestOutput) -> dict[str, Any]:
        """Returns what a stream would have sent of a cut answer: vLLM shows its calls as text, the whole ones too."""
        (parser, *_) = self.parsers(request, self.renderer.tokenizer, request.chat_template_kwargs)
        fields = Choice(output.index, parser, request.custom_tools).delta(output, result, request)
        calls = joined_calls(fields.pop("tool_calls", ()))
        return {"content": None} | fields | ({"tool_calls": calls} if calls else {})

    async def chat_completion_stream_generator(
        self,
        request: ChatCompletionRequest,
        result_generator: AsyncGenerator[RequestOutput, None],
        request_id: str,
        model_name: str,
        conversation: Any,
        tokenizer: TokenizerLike,
        request_metadata: Any,
        chat_template_kwargs: dict[str, Any] | None = None,
        mm_token_counts: Any = None,
    ) -> AsyncGenerator[ChatBatch, None]:
        """Yields a batch for each output of the engine, and the token counts at the end; else as vLLM's."""
        ours = cast(EngineRequest, request)
        head = {"id": request_id, "created": int(time.time()), "model": model_name}
        events = EventStream(
            request,
            head,
            self.parsers(request, tokenizer, chat_template_kwargs),
            partial(self.logprobs_of, request),
            counts_reasoning=self._counts_reasoning,
            cut_tokens=ours.cut_tokens,
            custom_tools=ours.custom_tools,
        )
        async with aclosing(result_generator) as results:
            async for result in results:
                self.raise_on_failure(result.outputs, request_id)
                yield events.batch(result)
        yield events.usage()


async def whole(
    results: AsyncGenerator[RequestOutput, None], cached: Cached, counted: Counted | None, yielded: list[RequestOutput]
) -> AsyncGenerator[RequestOutput, None]:
    """The last of `results`, or all of them as one where they come piece by piece, which is put into `yielded` too.

    `cached` is updated with each of them.
    """
    answer: RequestOutput | None = None
    async with aclosing(results):
        async for result in results:
            cached.update(result)
            if answer is None:
                answer = result
            else:
                answer.add(result, aggregate=True)
            if counted:
                tokens = sum(len(output.token_ids) for output in answer.outputs)
                counted(ChatBatch(b"", len(answer.prompt_token_ids or ()), tokens, cached.tokens))
    if answer is not None:
        answer.outputs.sort(key=lambda output: output.index)
        yielded.append(answer)
        yield answer
