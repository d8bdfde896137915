"""ThroughScorer: a decision model without an engine. A chat model that has the same weights reads its prompts.

    state, questions -> prompts -> `ReadJob` -> a replica of the chat model -> log-probabilities -> readings

Prompts and labels are those of the strategy `labels`. Of the weights only the tokenizer is loaded. Replicas of the chat
model come and go by themselves, so each reply says which runtime made it: one that was not measured answers nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path

from contract.base import Frozen
from contract.catalog import DecisionModel
from contract.chat.reads import ReadJob, ReadReply
from contract.decisions.engine import DecisionJob, Measurement, Readings
from contract.decisions.presets import Preset
from contract.errors import BUSY, RUNTIME_UNAVAILABLE, WARMING_UP, ApiError
from models.decisions import measuring
from models.decisions.labels import check_length
from models.decisions.measured import MeasuredScorer
from models.decisions.prompts import PROMPT_VERSION, PromptBook
from models.imports import Imports
from models.llm.engine import prepare_environment
from models.options import read
from models.weights.files import need_folder

log = logging.getLogger(f"parlance.{__name__}")

AGAIN_S = 1.0
"""After so long a measurement begins again that found the chat model busy, cold, or replaced by another."""

RETRY_AFTER_S = 5
"""For a client whose request came upon a runtime that is not measured."""

Reader = Callable[[ReadJob], Awaitable[ReadReply]]


class ThroughOptions(Frozen):
    """Options of `ThroughScorer`; all others are the chat model's. `calibrated` is as in `Options`."""

    calibrated: bool = False


class OtherRuntime(Exception):
    """A reply came from another runtime than the one that was measured."""


class ThroughScorer(MeasuredScorer):
    """A `LabelScorer` whose engine is a chat model's: `read_with` says how it is reached, before anything else."""

    options_type = ThroughOptions
    imports = Imports(("transformers",))
    reads_through = True
    version = PROMPT_VERSION

    def __init__(self, model: DecisionModel, path: Path | None) -> None:
        self._path = need_folder(path, model.id)
        self._options = read(model, ThroughOptions)
        super().__init__(model, calibrated=self._options.calibrated, images=False)
        self._reader: Reader | None = None
        self._book: PromptBook | None = None
        self._runtime = ""
        self._presets: tuple[Preset, ...] = ()
        self._measuring: asyncio.Task[None] | None = None

    def read_with(self, reader: Reader) -> None:
        """From now on `reader` reads."""
        self._reader = reader

    async def measure(self, presets: Iterable[Preset]) -> Measurement:
        """As every scorer; waits where the chat model is busy or cold, or is replaced meanwhile.

        Raises ApiError where it cannot be reached: ENGINE_FAILED, UPSTREAM_ERROR, UPSTREAM_TIMEOUT.
        """
        self._presets = tuple(presets)
        while True:
            try:
                return await super().measure(self._presets)
            except OtherRuntime:
                log.warning("%s: the chat model was replaced while it was measured", self.model.id)
            except ApiError as error:
                if error.fault not in (BUSY, WARMING_UP):
                    raise
            await asyncio.sleep(AGAIN_S)

    async def prepare(self, presets: Sequence[Preset]) -> None:
        """Finds out which runtime reads, and makes prompts for it."""
        reply = await self._read(ReadJob())
        self._book = await asyncio.to_thread(self._made_book, reply.block_tokens)
        self._runtime = reply.runtime

    async def decide(self, job: DecisionJob) -> Readings:
        """As every scorer. Where another runtime has read, it is measured first: RUNTIME_UNAVAILABLE until then."""
        measured = self._measured
        if measured is not None:
            try:
                return await super().decide(job)
            except OtherRuntime:
                if self._measured is measured:  # else it was measured meanwhile
                    log.warning("%s: another runtime reads, and is measured now", self.model.id)
                    self._measured = None
        if self._measured is None and self._presets and (self._measuring is None or self._measuring.done()):
            self._measuring = asyncio.create_task(self._measure_again(), name=f"measure {self.model.id}")
        raise RUNTIME_UNAVAILABLE(retry_after_s=RETRY_AFTER_S)

    async def read_job(self, job: DecisionJob, temperature: float) -> Readings:
        """A reading for each question, in order. Raises REQUEST_TOO_LARGE, OtherRuntime, and what the reader raises."""
        book, measured = self._book, self._runtime
        assert book is not None, "`prepare` comes first"
        batch = book.batch(job.state, job.questions)
        check_length(batch, self.model)
        reply = await self._read(ReadJob(tuple(batch.prompts), job.owner))
        if reply.runtime != measured:
            raise OtherRuntime
        return Readings(reply.reads, batch.input_tokens, temperature)

    def fingerprint(self, presets: Sequence[Preset]) -> str:
        """Of the chat model's runtime, wording, options and examples."""
        packs = [preset.model_dump() for preset in presets]
        return measuring.fingerprint(self._runtime, PROMPT_VERSION, self._options.calibrated, packs)

    async def check_health(self) -> None:
        """Nothing of its own can fail; Serve asks the chat model itself."""

    def close(self) -> None:
        """Ends a measurement that is under way."""
        if self._measuring is not None:
            self._measuring.cancel()

    async def _read(self, job: ReadJob) -> ReadReply:
        assert self._reader is not None, "`read_with` comes first"
        return await self._reader(job)

    def _made_book(self, block_tokens: int) -> PromptBook:
        """Prompts for the tokenizer as vLLM loads it for the chat model. Raises LabelError."""
        prepare_environment(in_process=True, eager=True, threads=None)
        from vllm.tokenizers import get_tokenizer

        return PromptBook(get_tokenizer(str(self._path)), block_tokens)

    async def _measure_again(self) -> None:
        try:
            await self.measure(self._presets)
        except Exception as error:
            # The next request tries again.
            log.error("%s could not be measured again: %s", self.model.id, type(error).__name__)
