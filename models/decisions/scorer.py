"""LabelScorer: a decision model in vLLM, which is imported when one is constructed and not before."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from contract.catalog import DecisionModel
from contract.decisions.engine import DecisionJob, Readings
from contract.decisions.presets import Preset
from contract.errors import UPSTREAM_ERROR, ApiError
from models.decisions import measuring, strategies
from models.decisions.images import Pictures
from models.decisions.measured import MeasuredScorer
from models.decisions.options import Options
from models.decisions.prompts import PROMPT_VERSION
from models.decisions.reading import ReadRequest
from models.imports import Imports
from models.llm import engine, head
from models.llm.exact import exactly
from models.options import read
from models.weights import store as weights
from models.weights.files import need_folder

log = logging.getLogger(f"parlance.{__name__}")


class LabelScorer(MeasuredScorer):
    """A model that is read for how likely it finds each allowed answer. Answers once it is measured.

    Raises OptionsError, WeightsError, and StrategyError for a strategy that does not fit the weights.
    """

    options_type = Options
    version = PROMPT_VERSION

    @classmethod
    def imports(cls, model: DecisionModel) -> Imports | None:
        return engine.imports(read(model, Options))

    def __init__(self, model: DecisionModel, path: Path | None) -> None:
        self._path = need_folder(path, model.id)
        self._options = read(model, Options)
        super().__init__(model, calibrated=self._options.calibrated, images=self._options.images)
        self._engine = engine.start(_spec(model, self._options, self._path))
        head.keep(self._engine)
        self._strategy = strategies.start(self._options.strategy, self._engine, model)
        self._pictures = Pictures()
        self._numbers = itertools.count()

    async def check_health(self) -> None:
        """Raises if the engine has died, or has work and does not get on with it."""
        await self._engine.check_health()

    def close(self) -> None:
        """Ends the engine; requests in flight fail with 502."""
        self._engine.shutdown()

    async def read_job(self, job: DecisionJob, temperature: float) -> Readings:
        """A reading for each question, in order.

        Raises:
            ApiError: INVALID_REQUEST for an image that cannot be read, REQUEST_TOO_LARGE if the model's window is too
                small, UPSTREAM_ERROR if the engine fails.
        """
        images = await self._pictures.decode(job.images) if job.images else []
        request = ReadRequest(job, images, f"decision-{next(self._numbers)}")
        try:
            found = await self._strategy.read(request)
        except ApiError:
            raise
        except Exception as failure:
            # vLLM's texts may quote the prompt, which must not get into a log.
            log.error("a read of %s failed: %s", self.model.id, type(failure).__name__)
            raise UPSTREAM_ERROR() from None
        return Readings(found.reads, found.input_tokens, temperature)

    def fingerprint(self, presets: Sequence[Preset]) -> str:
        """Of weights, wording, options and examples."""
        packs: list[Any] = [preset.model_dump() for preset in presets]
        options = self._options
        how = (PROMPT_VERSION, options.strategy, str(self._engine.model_config.dtype))
        files = weights.hashes_of(self.model, self._path)
        return measuring.fingerprint(files, how, options.arguments, options.calibrated, packs)


def _spec(model: DecisionModel, options: Options, path: Path) -> engine.EngineSpec:
    serving = model.serving
    spec = engine.EngineSpec(
        path,
        model.context_window,
        options.arguments,
        threads=serving.threads if serving else None,
        in_process=not options.engine_process,
    )
    return exactly(spec, on_gpu=bool(serving and serving.on_gpu)) if options.exact else spec
