"""LabelScorer: a language model as a decision model. It is read at the first token of its answer.

    head with images -> vLLM's processor, once -> + state, rule, question, tail for each question -> one read each

Prompts are made token by token (`prompts.py`). vLLM is imported when a scorer is constructed and not before.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contract.catalog import DecisionModel
from contract.decisions.engine import DecisionJob, Reading, Readings
from contract.decisions.questions import Preset
from contract.errors import REQUEST_TOO_LARGE, UPSTREAM_ERROR, ApiError
from contract.limits import DECISION_IMAGES
from models.cpu import background
from models.decisions import calibration
from models.decisions.measured_scorer import MeasuredScorer
from models.decisions.prompts import PROMPT_VERSION, Batch, LabelPrompt, PromptBook
from models.llm import adapter, engine
from models.llm.arguments import EngineOptions
from models.llm.images import cache_names, decode, unreadable
from models.options import read
from models.weights import store as weights
from models.weights.files import need_folder

if TYPE_CHECKING:
    from PIL.Image import Image

log = logging.getLogger(f"parlance.{__name__}")

IMAGE_ARGUMENTS: dict[str, Any] = {"limit_mm_per_prompt": {"image": DECISION_IMAGES}, "mm_processor_cache_gb": 0}
"""Engine arguments of a model that sees, where its stanza says nothing. No image of a client is cached."""


class LabelOptions(EngineOptions):
    """Options of `LabelScorer`: whether a temperature is fitted to labelled examples, and whether the model sees."""

    calibrated: bool = False
    images: bool = False

    @property
    def arguments(self) -> dict[str, Any]:
        return IMAGE_ARGUMENTS | self.engine if self.images else self.engine


class LabelScorer(adapter.EngineAdapter, MeasuredScorer):
    """A model that is read for how likely it finds each allowed answer. It answers once it is measured.

    Raises OptionsError, WeightsError, and LabelError if the tokenizer has no labels.
    """

    options_type = LabelOptions
    version = PROMPT_VERSION

    def __init__(self, model: DecisionModel, path: Path | None) -> None:
        self._path = need_folder(path, model.id)
        self._options = read(model, LabelOptions)
        super().__init__(model, calibrated=self._options.calibrated, images=self._options.images)
        spec = adapter.spec_of(model, self._path, model.context_window, self._options, self._options.arguments)
        self.engine = engine.start(spec)
        from models.llm.vllm_internals.heads import cache_heads

        cache_heads(self.engine)
        self._paused = getattr(self.engine.engine_core, "paused", nullcontext)
        self._renderer: Any = self.engine.renderer
        block_tokens = self.engine.vllm_config.cache_config.block_size
        self.book = PromptBook(self._renderer.get_tokenizer(), block_tokens, parts=model.reads_images)
        self._decoding = background(1, "images")
        self._numbers = itertools.count()

    async def read_job(self, job: DecisionJob, temperature: float) -> Readings:
        """Raises INVALID_REQUEST for an image that cannot be read, REQUEST_TOO_LARGE and UPSTREAM_ERROR."""
        images: list[Image] = []
        if job.images:
            # One image at a time, also of callers who leave: in full size it takes some hundred megabytes.
            loop = asyncio.get_running_loop()
            images = [await loop.run_in_executor(self._decoding, decode, address) for address in job.images]
        try:
            return await self._read_all(job, images, temperature)
        except ApiError:
            raise
        except Exception as failure:
            # vLLM's texts may quote the prompt, which must not get into a log.
            log.error("a read of %s failed: %s", self.model.id, type(failure).__name__)
            raise UPSTREAM_ERROR() from None

    def fingerprint(self, presets: Sequence[Preset]) -> str:
        packs: list[Any] = [preset.model_dump() for preset in presets]
        options, dtype = self._options, str(self.engine.model_config.dtype)
        files = weights.hashes_of(self.model, self._path)
        return calibration.fingerprint(files, PROMPT_VERSION, dtype, options.arguments, options.calibrated, packs)

    async def _read_all(self, job: DecisionJob, images: Sequence[Image], temperature: float) -> Readings:
        head = await self._image_head(job, images) if images else None
        batch = self.book.batch(job.state, job.questions, head and head["prompt_token_ids"])
        check_length(batch, self.model)
        number = next(self._numbers)
        reads = asyncio.gather(
            *(self._read(prompt, f"decision-{number}-{at}", job.owner, head) for at, prompt in enumerate(batch.prompts))
        )
        with self._paused():  # in one step, not the first alone and the others after it
            await asyncio.sleep(0)
        placeholders = head["mm_placeholders"]["image"] if head else ()
        tokens = batch.input_tokens + sum(image.length for image in placeholders)
        return Readings(tuple(await reads), tokens, temperature)

    async def _read(self, prompt: LabelPrompt, request_id: str, owner: str, head: Any) -> Reading:
        """Returns the probability of each label as the first token after `prompt`."""
        from vllm.entrypoints.generate.label_reads import next_token_label_reads
        from vllm.inputs import tokens_input
        from vllm.sampling_params import SamplingParams

        params = SamplingParams(max_tokens=1, temperature=0, logprob_token_ids=prompt.label_ids, detokenize=False)
        # Images lie in the head, so their places are the same in every prompt.
        whole = head and head | {"prompt_token_ids": prompt.token_ids}
        started = time.perf_counter()
        engine_input = whole or tokens_input(prompt.token_ids, cache_salt=owner or None)
        (label_read,) = await next_token_label_reads(self.engine, [engine_input], [params], request_id)
        return Reading(tuple(label_read.logprobs), time.perf_counter() - started)

    async def _image_head(self, job: DecisionJob, images: Sequence[Image]) -> Any:
        """The head of the prompts with its images, as the engine takes it; images are processed once for all reads."""
        from vllm.inputs import TokensPrompt

        prompt = TokensPrompt(
            prompt_token_ids=self.book.head(len(images)),
            multi_modal_data={"image": list(images)},
            multi_modal_uuids={"image": cache_names(job.images, job.owner or None)},
        )
        if job.owner:
            prompt["cache_salt"] = job.owner
        try:
            return await self._renderer.process_for_engine_async(prompt, time.time(), skip_mm_cache=True)
        except ValueError:
            raise unreadable(f"model `{self.model.id}` cannot read an image of this shape") from None


def check_length(batch: Batch, model: DecisionModel) -> None:
    """Raises REQUEST_TOO_LARGE for a prompt that does not fit the window of `model`."""
    longest = max(len(prompt.token_ids) for prompt in batch.prompts)
    if longest >= model.context_window:
        raise REQUEST_TOO_LARGE(
            f"state and question have {longest} tokens; model `{model.id}` reads at most {model.context_window}"
        )
