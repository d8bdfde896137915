"""The strategy `labels`: any language model, read at the first token of its answer. Prompts are ours, token by token.

head with images -> vLLM's processor, once -> + state, rule, question, tail for each question -> one read each
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from contract.catalog import DecisionModel
from contract.errors import REQUEST_TOO_LARGE
from models.decisions.images import unreadable
from models.decisions.prompts import Batch, PromptBook
from models.decisions.reading import ReadRequest, ReadResult
from models.llm.label_reads import read_labels
from models.llm.pictures import known_by

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM


class LabelReads:
    """Reads of `engine`. Raises LabelError if its tokenizer has no labels."""

    def __init__(self, engine: AsyncLLM, model: DecisionModel) -> None:
        block_tokens = engine.vllm_config.cache_config.block_size
        self._engine = engine
        self._model = model
        self._renderer: Any = engine.renderer
        self.book = PromptBook(self._renderer.get_tokenizer(), block_tokens, parts=model.reads_images)

    async def read(self, request: ReadRequest) -> ReadResult:
        """One read for each question. Raises REQUEST_TOO_LARGE, and INVALID_REQUEST for an image."""
        job = request.job
        head = await self._seen(request) if request.images else None
        batch = self.book.batch(job.state, job.questions, head and head["prompt_token_ids"])
        check_length(batch, self._model)
        # Images lie in the head, so their places are the same in every prompt.
        reads = (
            read_labels(
                self._engine,
                prompt,
                f"{request.request_id}-{index}",
                cache_salt=job.cache_salt,
                whole=head and head | {"prompt_token_ids": prompt.token_ids},
            )
            for index, prompt in enumerate(batch.prompts)
        )
        pictures = head["mm_placeholders"]["image"] if head else ()
        tokens = batch.input_tokens + sum(picture.length for picture in pictures)
        return ReadResult(tuple(await asyncio.gather(*reads)), tokens)

    async def _seen(self, request: ReadRequest) -> Any:
        """The head of the prompts with its images, as the engine takes it; images are processed once for all reads."""
        from vllm.inputs import TokensPrompt

        ids = self.book.head(len(request.images))
        prompt = TokensPrompt(
            prompt_token_ids=ids,
            multi_modal_data={"image": list(request.images)},
            multi_modal_uuids={"image": known_by(request.job.images, request.job.cache_salt)},
        )
        if request.job.cache_salt is not None:
            prompt["cache_salt"] = request.job.cache_salt
        try:
            return await self._renderer.process_for_engine_async(prompt, time.time(), skip_mm_cache=True)
        except ValueError:
            raise unreadable(f"model `{self._model.id}` cannot read an image of this shape") from None


def check_length(batch: Batch, model: DecisionModel) -> None:
    """Raises REQUEST_TOO_LARGE for a prompt that does not fit the window of `model`."""
    longest = max(len(prompt.token_ids) for prompt in batch.prompts)
    if longest >= model.context_window:
        raise REQUEST_TOO_LARGE(
            f"state and question have {longest} tokens; model `{model.id}` reads at most {model.context_window}"
        )
