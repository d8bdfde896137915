"""Texts as token ids and back, in a thread beside those of vLLM, so that a long text holds up no chat. Needs vLLM.

All of them read one tokenizer at the same time, and none changes it: only truncation by the tokenizer itself would
(`quick_tokenizers`).
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence
from typing import Any

from vllm.config import ModelConfig
from vllm.entrypoints.serve.engine.protocol import ErrorResponse
from vllm.renderers import TokenizeParams
from vllm.utils.mistral import is_mistral_tokenizer

from contract.catalog import ChatModel
from contract.chat.request import ChatRequest
from contract.errors import INVALID_REQUEST
from contract.tokens import TokenizeJob
from models.chat.errors import error_of
from models.chat.request import engine_fields
from models.chat.serving import EngineRequest
from models.cpu import background
from models.llm.plain_text import PlainText
from models.llm.vllm_internals.serving import CutAtTop


class WholeRequest(EngineRequest):
    """A conversation of which only the tokens are needed: nothing of it is cut."""

    def build_tok_params(self, model_config: ModelConfig) -> TokenizeParams:
        return CutAtTop(max_total_tokens=None, add_special_tokens=self.add_special_tokens)


async def rendered_ids(renderer: Any, model: ChatModel, job: TokenizeJob, request: ChatRequest) -> list[int]:
    """The tokens of the prompt of `request`, none of them cut. Raises ApiError."""
    fields = {"add_generation_prompt": job.add_generation_prompt, "add_special_tokens": job.add_special_tokens}
    try:
        whole = WholeRequest(model=model.id, **engine_fields(request, thinking=model.thinking) | fields)
        rendered = await renderer.render_chat(whole, skip_mm_cache=True)
    except Exception as failure:
        raise error_of(failure, request) from failure
    if isinstance(rendered, ErrorResponse):
        raise error_of(rendered, request)
    _, (prompt,) = rendered
    return list(prompt["prompt_token_ids"])


class TextTokens:
    """The tokenizer of one model, for texts without a chat template.

    Args:
        name: of the model, for error messages.
        tokenizer: vLLM's. A copy takes as long as loading it, so there is one only where it cannot be shared.
        vocabulary: rows of the model's embedding.

    Attributes:
        size: of the vocabulary: ids are below it.
        begin: the token that begins every text, if there is one.
    """

    def __init__(self, name: str, tokenizer: Any, vocabulary: int) -> None:
        self._name = name
        self._tokenizer = copy.deepcopy(tokenizer) if is_mistral_tokenizer(tokenizer) else tokenizer
        self.size = min(vocabulary, tokenizer.max_token_id + 1)
        self.begin: int | None = tokenizer.bos_token_id
        self._backend = None
        if self._tokenizer is tokenizer:
            self._backend = self._tokenizer.backend_tokenizer
            self._backend.no_truncation()
            self._backend.no_padding()
        self._plain = None if self._backend is None else PlainText(self._tokenizer)
        self._thread = background(1, "tokens")

    async def ids(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Tokens of `text`, begun with what the tokenizer puts before every text where `add_special_tokens`."""
        ids: list[int] = await self._run(self._encode, text, add_special_tokens)
        return ids

    async def text(self, ids: Sequence[int]) -> str:
        """Returns the text of `ids`, control tokens included. The ids are in the vocabulary."""
        return str(await self._run(self._tokenizer.decode, list(ids)))

    async def strings(self, ids: Sequence[int]) -> list[str]:
        """Each of `ids` as the vocabulary writes it. The ids are in the vocabulary."""
        strings: list[str] = await self._run(self._tokenizer.convert_ids_to_tokens, list(ids))
        return strings

    def check(self, ids: Sequence[int], param: str) -> None:
        """Raises INVALID_REQUEST if one of `ids`, which stand in the field `param`, is not in the vocabulary."""
        wrong = next((token for token in ids if token >= self.size), None)
        if wrong is not None:
            raise INVALID_REQUEST(
                f"token id {wrong} is not in the vocabulary of `{self._name}`, whose ids are 0 to {self.size - 1}",
                param=param,
            )

    def known(self, words: Sequence[str]) -> list[int]:
        """The ids of tokens of the vocabulary. Raises ValueError for one that it lacks."""
        ids = [self._tokenizer.get_vocab().get(word) for word in words]
        if None in ids:
            raise ValueError(f"the vocabulary of `{self._name}` has no token `{words[ids.index(None)]}`")
        return ids

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _run(self, work: Any, *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    def _encode(self, text: str, add_special_tokens: bool) -> list[int]:
        if self._backend is None:
            return list(self._tokenizer.encode(text, add_special_tokens=add_special_tokens))
        first, *others = self._plain.pieces(text) if self._plain else [text]
        ids = list(self._backend.encode(first, add_special_tokens=add_special_tokens).ids)
        # All at once and by the library below: there may be a million.
        for more in self._backend.encode_batch_fast(others, add_special_tokens=False):
            ids += more.ids
        return ids
