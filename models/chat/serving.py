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
from vllm.entrypoints.openai.models.protocol import BaseModelPath
from vllm.entrypoints.openai.models.serving import OpenAIServingModels
from vllm.entrypoints.serve import create_error_response
from vllm.entrypoints.serve.engine.protocol import ErrorResponse
from vllm.outputs import RequestOutput
from vllm.renderers import TokenizeParams
from vllm.sampling_params import RequestOutputKind, SamplingParams, StructuredOutputsParams
from vllm.tokenizers import TokenizerLike
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.structured_output.backend_types import StructuredOutputOptions
from vllm.v1.structured_output.request import get_structured_output_key

from contract.catalog import ChatModel
from contract.chat import schemas
from contract.chat.engine import ChatBatch, ChatCompletion, ChatReply, ChatUsage, usage_of
from contract.chat.request import ChatRequest
from contract.completions import CompletionRequest
from contract.errors import INVALID_REQUEST, UPSTREAM_ERROR, ApiError
from contract.limits import SCHEMA_COMPILE_S, SCHEMA_STEP_MS
from models.chat.events import Cached, EventStream, stop_of
from models.chat.request import answer_reserve
from models.chat.tools import restore_custom_call
from models.chat.turns import TurnRenderer, sentinels_for
from models.llm.grammars import Grammars, Kind, Refused
from models.llm.vllm_internals.serving import OpenServingChat
from models.llm.vllm_internals.tokenizing import Cut, CutAtTop

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
        """As vLLM's; several answers, or one that is counted, come piece by piece, each with its cached tokens."""
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


class ChatServing(OpenServingChat):
    """`OpenAIServingChat` whose streams are `ChatBatch`es and raise where vLLM's write an error event."""

    def __init__(
        self,
        engine: AsyncLLM,
        model: ChatModel,
        template: str | None,
        grammars: Grammars,
        *,
        control_tokens_in_text: bool = False,
    ) -> None:
        shared: dict[str, Any] = {
            "request_logger": None,
            "chat_template": template,
            "chat_template_content_format": "auto",
            "enable_auto_tools": model.tool_parser is not None,
            "tool_parser": model.tool_parser,
            "reasoning_parser": model.reasoning_parser or "",
        }
        sentinels = None if control_tokens_in_text else sentinels_for(engine.renderer.tokenizer)
        renderer = TurnRenderer(engine.model_config, engine.renderer, sentinels, **shared)
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
        head = {"id": request_id, "created": int(time.time()), "model": model_name}
        events = EventStream(
            request,
            head,
            self.parsers(request, tokenizer, chat_template_kwargs),
            partial(self.logprobs_of, request),
            counts_reasoning=self._counts_reasoning,
            cut_tokens=cut_of(request),
            custom_tools=cast(EngineRequest, request).custom_tools,
        )
        async with aclosing(result_generator) as results:
            async for result in results:
                self.raise_on_failure(result.outputs, request_id)
                yield events.batch(result)
        yield events.usage()


def cut_of(request: ChatCompletionRequest) -> int:
    """Tokens that were cut from the top of the input of `request`."""
    return request.cut_tokens if isinstance(request, EngineRequest) else 0


async def whole(
    results: AsyncGenerator[RequestOutput, None], cached: Cached, counted: Counted | None = None
) -> AsyncGenerator[RequestOutput, None]:
    """The last of `results`, or all of them as one where they come piece by piece. `cached` is updated with each."""
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
        yield answer


GRAMMAR_ERRORS = ("Invalid grammar specification", "Grammar error")
"""First words of vLLM's errors for a JSON schema."""


def error_of(failure: Exception | ErrorResponse, request: ChatRequest | CompletionRequest) -> ApiError:
    """The API error for what vLLM raised or returned: its 4xx are the client's faults, all others the server's."""
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
    return schema_refused(Refused("invalid", detail), next(schemas.compiled(request), ("tools", {}))[0])


FORMS = {
    "structured_outputs.regex": "the regular expression",
    "structured_outputs.choice": "the list of answers",
}
"""What a field holds that has no JSON schema."""


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
    return INVALID_REQUEST(f"{FORMS.get(param, 'the JSON schema')} in `{param}` {why}", param=param)


def reply_body(
    response: ChatCompletionResponse, usage: ChatUsage, custom_tools: Collection[str] = ()
) -> ChatCompletion:
    """A `chat.completion` in OpenAI's schema with `usage`: vLLM's additions are left out.

    `custom_tools` are names of tools whose calls are returned as calls of custom tools.
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
        fields["tool_calls"] = [
            restore_custom_call(call.model_dump(exclude_none=True), custom_tools) for call in message.tool_calls
        ]
    if message.reasoning:
        fields["reasoning_content"] = message.reasoning
    return fields
