"""vLLM's chat serving (templates, tools, reasoning, schemas) with our event stream, our cut and our errors.

Imported where an engine has been started: it needs vLLM.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import aclosing
from functools import partial
from typing import Any, cast, get_args

from pydantic import PrivateAttr
from vllm.config import ModelConfig
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest, ChatCompletionResponse
from vllm.entrypoints.openai.chat_completion.serving import OpenAIServingChat
from vllm.entrypoints.openai.models.protocol import BaseModelPath
from vllm.entrypoints.openai.models.serving import OpenAIServingModels
from vllm.entrypoints.serve import create_error_response
from vllm.entrypoints.serve.engine.protocol import ErrorResponse
from vllm.outputs import CompletionOutput, RequestOutput
from vllm.renderers import TokenizeParams
from vllm.sampling_params import RequestOutputKind, SamplingParams, StructuredOutputsParams
from vllm.tokenizers import TokenizerLike
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.structured_output.backend_types import StructuredOutputOptions
from vllm.v1.structured_output.request import get_structured_output_key

from contract.catalog import ChatModel
from contract.chat.engine import ChatBatch, ChatCompletion, ChatReply
from contract.chat.request import ChatRequest
from contract.chat.usage import ChatUsage, usage_of
from contract.completions import CompletionRequest
from contract.errors import INVALID_REQUEST, UPSTREAM_ERROR, ApiError
from contract.limits import SCHEMA_COMPILE_S, SCHEMA_STEP_MS
from models.chat.cut import Cut, CutAtTop
from models.chat.events import Cached, EventStream, stop_of
from models.chat.request import answer_reserve
from models.chat.tools import said
from models.chat.turns import TurnRenderer, marks_of
from models.llm.grammars import Grammars, Kind, Refused

Counted = Callable[[ChatBatch], None]
"""Is told the tokens of a whole answer so far, as a batch without events."""


class EngineRequest(ChatCompletionRequest):
    """vLLM's request, built from `engine_fields` only, that is cut and not refused when too long.

    Attributes:
        custom_tools: names of the functions that are custom tools to the client.
    """

    custom_tools: frozenset[str] = frozenset()

    _cut: Cut = PrivateAttr(default_factory=Cut)
    _counted: Counted | None = PrivateAttr(None)

    def count(self, counted: Counted) -> None:
        """Has `counted` told of each token of a whole answer."""
        self._counted = counted

    @property
    def cut_tokens(self) -> int:
        """Cut from the top of the input, once that has become tokens."""
        return self._cut.tokens

    def to_sampling_params(self, max_tokens: int, default_sampling_params: dict[str, Any]) -> SamplingParams:
        """As vLLM's; what is counted comes piece by piece, and several answers do: each says what it found cached."""
        params = super().to_sampling_params(max_tokens, default_sampling_params)
        if params.n > 1 or self._counted:
            params.output_kind = RequestOutputKind.DELTA
        return params

    def build_tok_params(self, model_config: ModelConfig) -> TokenizeParams:
        """How the rendered prompt becomes tokens."""
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


class ChatServing(OpenAIServingChat):
    """`OpenAIServingChat` whose streams are `ChatBatch`es and raise where vLLM's write an error event."""

    def __init__(
        self,
        engine: AsyncLLM,
        model: ChatModel,
        template: str | None,
        grammars: Grammars,
    ) -> None:
        shared: dict[str, Any] = {
            "request_logger": None,
            "chat_template": template,
            "chat_template_content_format": "auto",
            "enable_auto_tools": model.tool_parser is not None,
            "tool_parser": model.tool_parser,
            "reasoning_parser": model.reasoning_parser or "",
        }
        marks = marks_of(engine.renderer.tokenizer)
        renderer = TurnRenderer(engine.model_config, engine.renderer, marks, **shared)
        renderer.warmup()
        names = OpenAIServingModels(engine, [BaseModelPath(name=model.id, model_path=model.id)])
        super().__init__(engine, names, "assistant", online_renderer=renderer, **shared)
        self._counts_reasoning = bool(model.reasoning_parser)
        self._grammars = grammars

    async def render_chat_request(self, request: ChatCompletionRequest) -> Any:
        """As vLLM's; then the grammar that the engine would compile for `request` is checked.

        Raises Refused and Crowded of `models.llm.grammars`.
        """
        rendered = await super().render_chat_request(request)
        structure = request.extract_structured_outputs()
        if isinstance(rendered, ErrorResponse) or structure is None or structure.all_constraints_none():
            return rendered
        kind, spec = get_structured_output_key(structure)
        if kind is StructuredOutputOptions.JSON_OBJECT:
            return rendered
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
        """As vLLM's, but for what it returns."""
        cached = Cached()
        answer = await super().chat_completion_full_generator(
            request, whole(result_generator, cached, cast(EngineRequest, request)._counted), *arguments, **options
        )
        if isinstance(answer, ErrorResponse):
            return answer
        details = answer.usage.completion_tokens_details
        usage = usage_of(
            answer.usage.prompt_tokens,
            answer.usage.completion_tokens or 0,
            cached_tokens=cached.tokens,
            reasoning_tokens=details.reasoning_tokens if details else 0,
            cut_tokens=cut_of(request),
        )
        body = reply_body(answer, usage, cast(EngineRequest, request).custom_tools)
        tokens = usage["prompt_tokens"], usage["completion_tokens"]
        stop_sequence = next((stop_of(choice.stop_reason) for choice in answer.choices), None)
        return ChatReply(body, *tokens, cached.tokens, cut_of(request), stop_sequence)

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
        """As vLLM's, but for what it yields: a batch for each output of the engine, and the token counts at the end."""

        def parser() -> Any:
            return self._make_parser(request, tokenizer, chat_template_kwargs) if self.parser_cls else None

        head = {"id": request_id, "created": int(time.time()), "model": model_name}
        parsers = [parser() for _ in range(request.n or 1)]
        logprobs_of = partial(self._logprobs_of, request)
        custom = cast(EngineRequest, request).custom_tools
        events = EventStream(
            request,
            head,
            parsers,
            logprobs_of,
            counts_reasoning=self._counts_reasoning,
            cut_tokens=cut_of(request),
            custom_tools=custom,
        )
        async with aclosing(result_generator) as results:
            async for result in results:
                for output in result.outputs:
                    self._raise_if_error(output.finish_reason, request_id)
                yield events.batch(result)
        yield events.usage()

    def _logprobs_of(self, request: ChatCompletionRequest, output: CompletionOutput) -> dict[str, Any] | None:
        """The `logprobs` object of a choice; None for an output without tokens."""
        if not output.token_ids or output.logprobs is None:
            return None
        logprobs = self._create_chat_logprobs(
            output.token_ids, output.logprobs, self.renderer.tokenizer, request.top_logprobs
        )
        plain: dict[str, Any] = logprobs.model_dump()
        return plain


def cut_of(request: ChatCompletionRequest) -> int:
    """Tokens that were cut from the top of the input of `request`."""
    return request.cut_tokens if isinstance(request, EngineRequest) else 0


async def whole(
    results: AsyncGenerator[RequestOutput, None], cached: Cached, counted: Counted | None = None
) -> AsyncGenerator[RequestOutput, None]:
    """The last of `results`, or all of them as one where they come piece by piece. `cached` sees each."""
    made: RequestOutput | None = None
    async with aclosing(results):
        async for result in results:
            cached.see(result)
            if made is None:
                made = result
            else:
                made.add(result, aggregate=True)
            if counted:
                written = sum(len(output.token_ids) for output in made.outputs)
                counted(ChatBatch(b"", len(made.prompt_token_ids or ()), written, cached.tokens))
    if made is not None:
        made.outputs.sort(key=lambda output: output.index)
        yield made


GRAMMAR_ERRORS = ("Invalid grammar specification", "Grammar error")
"""How vLLM's refusals of a JSON schema begin."""


def error_of(failure: Exception | ErrorResponse, request: ChatRequest | CompletionRequest) -> ApiError:
    """The row of our table for what vLLM raised or returned: its 4xx name a fault of the request, all else is ours."""
    if isinstance(failure, ApiError):
        return failure
    error = (failure if isinstance(failure, ErrorResponse) else create_error_response(failure)).error
    if not 400 <= error.code < 500:
        return UPSTREAM_ERROR()
    if isinstance(request, CompletionRequest):
        return INVALID_REQUEST(error.message, param=error.param or "prompt")
    if error.message.startswith(GRAMMAR_ERRORS):
        return _schema_error(error.message, request)
    return INVALID_REQUEST(error.message, param=error.param or "messages")


def _schema_error(detail: str, request: ChatRequest) -> ApiError:
    return schema_refused(Refused("invalid", detail), next(iter(request.compiled_schemas()), "tools"))


WHAT = {
    "structured_outputs.regex": "the regular expression",
    "structured_outputs.choice": "the list of answers",
}
"""What stands in a field, where that is no JSON schema."""


def schema_refused(refusal: Refused, param: str) -> ApiError:
    """The 400 for a schema or another form in the field `param` that is not compiled."""
    match refusal.reason:
        case "invalid":
            why = f"cannot be followed: {refusal.detail}"
        case "empty":
            why = "fits no answer"
            if refusal.detail:
                why = f"has a part that no answer can fit: after `{refusal.detail}` nothing can follow"
        case "slow":
            why = (
                f"takes too long to follow: {refusal.detail} ms for a token; at most {SCHEMA_STEP_MS} ms are allowed. "
                "Give it fewer branches that the same text fits"
            )
        case "time":
            why = f"takes too long to compile: more than {SCHEMA_COMPILE_S} s; give it fewer and smaller bounds"
        case _:
            why = "takes too much memory to compile; give it fewer and smaller bounds"
    return INVALID_REQUEST(f"{WHAT.get(param, 'the JSON schema')} in `{param}` {why}", param=param)


def reply_body(
    response: ChatCompletionResponse, usage: ChatUsage, custom_tools: Collection[str] = ()
) -> ChatCompletion:
    """A `chat.completion` in OpenAI's schema with `usage`: vLLM's additions are left out.

    `custom_tools` are names of tools whose calls are said as custom ones.
    """
    return {
        "id": response.id,
        "object": "chat.completion",
        "created": response.created,
        "model": response.model,
        "choices": [
            {
                "index": choice.index,
                "message": _message(choice.message, custom_tools),
                "logprobs": choice.logprobs.model_dump() if choice.logprobs else None,
                "finish_reason": choice.finish_reason,
            }
            for choice in response.choices
        ],
        "usage": usage,
    }


def _message(message: Any, custom_tools: Collection[str]) -> dict[str, Any]:
    fields = {"role": message.role, "content": message.content, "refusal": None}
    if message.tool_calls:
        fields["content"] = message.content or None
        fields["tool_calls"] = [said(call.model_dump(exclude_none=True), custom_tools) for call in message.tool_calls]
    if message.reasoning:
        fields["reasoning_content"] = message.reasoning
    return fields
