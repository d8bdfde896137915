"""Engine outputs of one request in OpenAI's schema: as events of a stream, or as one reply. Clients need these keys."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from contract.chat.engine import ChatBatch, ChatCompletion
from contract.chat.usage import ChatUsage, usage_of
from contract.wires import event
from models.chat.tools import CustomCalls, restore_custom_call

if TYPE_CHECKING:
    from vllm.entrypoints.generate.base.protocol import DeltaMessage
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest, ChatCompletionResponse
    from vllm.outputs import CompletionOutput, RequestOutput
    from vllm.parser import Parser


class Cached:
    """Tokens of the prompt that an earlier request had left in the cache.

    Of several answers all but the first find the tokens of the first in the cache, so the lowest count holds.
    """

    def __init__(self) -> None:
        self._fewest: int | None = None

    def update(self, result: RequestOutput) -> None:
        count = result.num_cached_tokens
        if count is not None:
            self._fewest = count if self._fewest is None else min(self._fewest, count)

    @property
    def tokens(self) -> int:
        """The count so far; 0 where the engine keeps no cache."""
        return self._fewest or 0


class Choice:
    """One of the `n` answers of a stream. `custom_tools` are the names of custom tools."""

    def __init__(self, index: int, parser: Parser | None, custom_tools: Collection[str] = ()) -> None:
        self.index = index
        self.parser = parser
        self._calls = CustomCalls(custom_tools)
        self.token_ids: list[int] = []
        self.called_tools = False
        self.finished = False

    def delta(self, output: CompletionOutput, result: RequestOutput, request: ChatCompletionRequest) -> dict[str, Any]:
        """Returns what `output` adds to the message; empty while the parser holds text back."""
        self.token_ids.extend(output.token_ids)
        if self.parser is None:
            return {"content": output.text} if output.text else {}
        finished = output.finish_reason is not None
        delta = self.parser.parse_delta(
            delta_text=output.text,
            delta_token_ids=list(output.token_ids),
            request=request,
            prompt_token_ids=result.prompt_token_ids,
            finished=finished,
        )
        fields = _plain(delta) if delta else {}
        parts = delta.tool_calls if delta else []
        if request.parallel_tool_calls is False:
            parts = [part for part in parts if part.index == 0]
        calls = [call for part in parts if (call := self._calls.delta(part.model_dump(exclude_none=True)))]
        calls += self._calls.rest() if finished else ()
        return fields | {"tool_calls": calls} if calls else fields


class EventStream:
    """Turns the outputs of one request into `ChatBatch`es. All events carry the same `id`, `created` and `model`.

    Args:
        request: as vLLM has it.
        head: `id`, `created` and `model`.
        parsers: of reasoning and tool calls, one for each choice; None for models that have neither.
        logprobs_of: the `logprobs` object of an output, where the request wants one.
        counts_reasoning: whether the parsers know how many tokens were reasoning.
        cut_tokens: number of tokens that were cut from the top of the input.
        custom_tools: names of the custom tools.
    """

    def __init__(
        self,
        request: ChatCompletionRequest,
        head: dict[str, Any],
        parsers: list[Parser | None],
        logprobs_of: Callable[[CompletionOutput], dict[str, Any] | None],
        *,
        counts_reasoning: bool,
        cut_tokens: int = 0,
        custom_tools: Collection[str] = (),
    ) -> None:
        self._request = request
        self._logprobs_of = logprobs_of
        self._counts_reasoning = counts_reasoning
        self._head = {"id": head["id"], "object": "chat.completion.chunk"} | head
        self._choices = [Choice(index, parser, custom_tools) for index, parser in enumerate(parsers)]
        self._with_usage = bool(request.stream_options and request.stream_options.include_usage)
        self._forced_name = not isinstance(request.tool_choice, str | None)
        self._prompt_tokens = 0
        self._cached = Cached()
        self._cut_tokens = cut_tokens
        self._stop_sequence: str | None = None
        self._has_roles = False

    def batch(self, result: RequestOutput) -> ChatBatch:
        """Everything that `result` adds, as events; the first events give each choice its role."""
        if result.prompt_token_ids is not None:
            self._prompt_tokens = len(result.prompt_token_ids)
        self._cached.update(result)
        chunks: list[dict[str, Any]] = []
        if not self._has_roles:
            self._has_roles = True
            chunks += [_choice(c.index, {"role": "assistant", "content": ""}) for c in self._choices]
        for output in result.outputs:
            choice = self._choices[output.index]
            if not choice.finished and (chunk := self._chunk(choice, output, result)):
                chunks.append(chunk)
        return self._batch(b"".join(self._event([chunk]) for chunk in chunks))

    def usage(self) -> ChatBatch:
        """The last event: token counts, if the request wants them."""
        return self._batch(self._event([], self._usage()) if self._with_usage else b"")

    def _chunk(self, choice: Choice, output: CompletionOutput, result: RequestOutput) -> dict[str, Any] | None:
        delta = choice.delta(output, result, self._request)
        choice.called_tools |= "tool_calls" in delta
        logprobs = self._logprobs_of(output) if self._request.logprobs else None
        if output.finish_reason is None:
            return _choice(choice.index, delta, logprobs) if delta or logprobs else None
        choice.finished = True
        if choice.index == 0:
            self._stop_sequence = stop_of(output.stop_reason)
        # As in OpenAI's API: a forced function ends with `stop`, a chosen one with `tool_calls`.
        ends_in_call = choice.called_tools and not self._forced_name and output.finish_reason == "stop"
        return _choice(choice.index, delta, logprobs, "tool_calls" if ends_in_call else output.finish_reason)

    def _usage(self) -> ChatUsage:
        parsed = [c for c in self._choices if c.parser] if self._counts_reasoning else []
        return usage_of(
            self._prompt_tokens,
            self._completion_tokens,
            cached_tokens=self._cached.tokens,
            reasoning_tokens=sum(c.parser.count_reasoning_tokens(c.token_ids) for c in parsed if c.parser),
            cut_tokens=self._cut_tokens,
        )

    @property
    def _completion_tokens(self) -> int:
        return sum(len(choice.token_ids) for choice in self._choices)

    def _event(self, choices: list[dict[str, Any]], usage: ChatUsage | None = None) -> bytes:
        chunk = self._head | {"choices": choices}
        if self._with_usage:
            chunk["usage"] = usage
        return event(chunk)

    def _batch(self, events: bytes) -> ChatBatch:
        counts = self._prompt_tokens, self._completion_tokens, self._cached.tokens, self._cut_tokens
        return ChatBatch(events, *counts, self._stop_sequence)


def stop_of(reason: int | str | None) -> str | None:
    """The string of `stop` that ended an answer; None for a control token, and for answers that ended otherwise."""
    return reason if isinstance(reason, str) else None


def _choice(
    index: int, delta: dict[str, Any], logprobs: dict[str, Any] | None = None, finish_reason: str | None = None
) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}


def _plain(delta: DeltaMessage) -> dict[str, Any]:
    """The text of a parser's delta under the names of our wire."""
    fields: dict[str, Any] = {}
    if delta.content:
        fields["content"] = delta.content
    if delta.reasoning:
        fields["reasoning_content"] = delta.reasoning
    return fields


def reply_body(
    response: ChatCompletionResponse, usage: ChatUsage, custom_tools: Collection[str] = ()
) -> ChatCompletion:
    """A `chat.completion` in OpenAI's schema with `usage`: vLLM's additions are left out.

    Calls of `custom_tools`, by name, are returned as calls of custom tools.
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
