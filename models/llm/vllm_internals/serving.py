"""vLLM's chat serving, with names of our own for those of its private methods that are called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.chat_completion.serving import OpenAIServingChat
from vllm.outputs import CompletionOutput


class OpenServingChat(OpenAIServingChat):
    """`OpenAIServingChat` whose parsers, logprobs and failures a subclass may use."""

    def parsers(
        self, request: ChatCompletionRequest, tokenizer: Any, template_variables: dict[str, Any] | None
    ) -> list[Any]:
        """A parser of reasoning and tool calls for each answer; None for a model that has neither."""

        def parser() -> Any:
            return self._make_parser(request, tokenizer, template_variables) if self.parser_cls else None

        return [parser() for _ in range(request.n or 1)]

    def raise_on_failure(self, outputs: Sequence[CompletionOutput], request_id: str) -> None:
        """Raises what vLLM raises where the engine failed at one of `outputs`."""
        for output in outputs:
            self._raise_if_error(output.finish_reason, request_id)

    def logprobs_of(self, request: ChatCompletionRequest, output: CompletionOutput) -> dict[str, Any] | None:
        """The `logprobs` object of a choice; None for an output without tokens."""
        if not output.token_ids or output.logprobs is None:
            return None
        logprobs = self._create_chat_logprobs(
            output.token_ids, output.logprobs, self.renderer.tokenizer, request.top_logprobs
        )
        plain: dict[str, Any] = logprobs.model_dump()
        return plain
