"""vLLM's chat serving: private methods under names of our own, and how it makes tokens of a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.chat_completion.serving import OpenAIServingChat
from vllm.outputs import CompletionOutput
from vllm.renderers import TokenizeParams
from vllm.tokenizers import TokenizerLike


class OpenServingChat(OpenAIServingChat):
    """`OpenAIServingChat` with its parsers, logprobs and failures for subclasses."""

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
        return dict(logprobs.model_dump())


@dataclass
class Cut:
    """Number of tokens that one input lost. Text that is never made tokens is not counted."""

    tokens: int = 0


@dataclass(frozen=True)
class CutAtTop(TokenizeParams):
    """Tokenising that cuts an input longer than the window at its top.

    `reserve` tokens stay free for the answer, where vLLM would leave one. A begin-of-text token stays first: some
    models fail without it. `cut` is filled.
    """

    reserve: int = 1
    cut: Cut = field(default_factory=Cut)

    def keeps(self, tokenizer: TokenizerLike | None, tokens: list[int]) -> tuple[int, int]:
        """Returns how many tokens stay at the beginning, and from which one on the others stay."""
        window = self.max_total_tokens
        if window is None or len(tokens) < window:
            return 0, 0
        first = 1 if tokenizer is not None and tokens[0] == tokenizer.bos_token_id else 0
        return first, len(tokens) - (window - self.reserve - first)

    def apply_pre_tokenization(self, tokenizer: TokenizerLike | None, prompt: Any) -> Any:
        """Works as vLLM's, which cuts a text many times the window; one with images has been cut before."""
        return prompt if prompt.get("multi_modal_data") else super().apply_pre_tokenization(tokenizer, prompt)

    def apply_post_tokenization(self, tokenizer: TokenizerLike | None, prompt: Any) -> Any:
        """Works as vLLM's, which cuts; images are not tokens yet."""
        return prompt if prompt.get("multi_modal_data") else super().apply_post_tokenization(tokenizer, prompt)

    def _token_truncation(self, tokenizer: TokenizerLike | None, tokens: Any) -> Any:
        first, start = self.keeps(tokenizer, tokens)
        self.cut.tokens = max(0, start - first)
        return tokens[:first] + tokens[start:] if start else tokens

    def _truncation_slice(self, tokenizer: TokenizerLike | None, length: int) -> slice | None:
        # This is what vLLM would cut after an image has become tokens; it refuses where an image does not fit.
        return None


def split_texts_at(tokenizer: Any, sentinel: str) -> None:
    """Makes `tokenizer` encode a text piece by piece, split at `sentinel`. Changes its class, as vLLM's cache does.

    A control token that spans two pieces is so never seen whole.
    """
    original: Any = type(tokenizer)

    class SplittingTokenizer(original):
        def __call__(self, text: Any = None, *arguments: Any, **options: Any) -> Any:
            if not isinstance(text, str) or sentinel not in text:
                return super().__call__(text, *arguments, **options)
            first, *others = text.split(sentinel)
            ids = list(super().__call__(first, *arguments, **options)["input_ids"])
            # All at once and by the library below: there may be ten thousand.
            for piece in self.backend_tokenizer.encode_batch_fast(others, add_special_tokens=False):
                ids += piece.ids
            return {"input_ids": ids}

        def __reduce__(self) -> Any:
            # A copy in another process is an ordinary one: no text with sentinels gets there.
            return original.__reduce__(self)

    SplittingTokenizer.__name__ = original.__name__
    SplittingTokenizer.__qualname__ = original.__qualname__
    tokenizer.__class__ = SplittingTokenizer
