"""LabelScorer: a decision model in vLLM, which is imported when one is constructed and not before."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from contract.catalog import DecisionModel
from contract.decisions.engine import DecisionEngine, DecisionJob, Measurement, Readings
from contract.decisions.presets import Preset
from contract.decisions.questions import state_text
from contract.errors import IMAGES_UNSUPPORTED, RUNTIME_UNAVAILABLE, UPSTREAM_ERROR, ApiError
from models.decisions import measuring, strategies
from models.decisions.images import Pictures
from models.decisions.options import Options
from models.decisions.prompts import PROMPT_VERSION
from models.decisions.reading import ReadRequest
from models.llm import engine, head
from models.llm.exact import exactly
from models.options import read
from models.weights import store as weights
from models.weights.files import Digests, need_folder, pin_all

log = logging.getLogger(f"parlance.{__name__}")


class LabelScorer(DecisionEngine):
    """A model that is read for how likely it finds each allowed answer. Answers once it is measured.

    Raises OptionsError, WeightsError, and StrategyError for a strategy that does not fit the weights.
    """

    options_type = Options

    def __init__(self, model: DecisionModel, path: Path | None) -> None:
        self._model = model
        self._path = need_folder(path, model.id)
        self._options = read(model, Options)
        self._engine = engine.start(_spec(model, self._options, self._path))
        head.keep(self._engine)
        self._strategy = strategies.start(self._options.strategy, self._engine, model)
        self._pictures = Pictures()
        self._numbers = itertools.count()
        self._measured: Measurement | None = None

    async def measure(self, presets: Iterable[Preset]) -> Measurement:
        """Reads the presets' examples, unless an earlier start has with the same weights and wording."""
        presets = list(presets)
        folder = weights.home_folder() / "measurements"
        wanted = await asyncio.to_thread(self._fingerprint, presets)
        kept = measuring.recall(folder, wanted)
        if kept is None:
            kept = measuring.measurement(
                await self._labelled(presets),
                calibrated=self._options.calibrated,
                fingerprint=wanted,
                prompt_version=PROMPT_VERSION,
            )
            measuring.keep(folder, kept)
            log.info("%s measured: accuracy %.2f, label mass %.2f", self._model.id, kept.accuracy, kept.label_mass)
        self._measured = kept
        return kept

    async def measured(self, job: None = None) -> Measurement | None:
        """The measurement, once there is one."""
        return self._measured

    async def decide(self, job: DecisionJob) -> Readings:
        """A reading for each question, in order.

        Raises:
            ApiError: RUNTIME_UNAVAILABLE before a measurement, IMAGES_UNSUPPORTED, INVALID_REQUEST for an image that
                cannot be read, REQUEST_TOO_LARGE if the model's window is too small, UPSTREAM_ERROR if the engine
                fails.
        """
        if self._measured is None:
            raise RUNTIME_UNAVAILABLE()
        if job.images and not self._options.images:
            raise IMAGES_UNSUPPORTED(f"model `{self._model.id}` reads no images here", param="images")
        return await self._read(job, self._measured.temperature)

    async def check_health(self) -> None:
        """Raises if the engine has died, or has work and does not get on with it."""
        await self._engine.check_health()

    def close(self) -> None:
        """Ends the engine; requests in flight fail with 502."""
        self._engine.shutdown()

    async def _read(self, job: DecisionJob, temperature: float) -> Readings:
        images = await self._pictures.decode(job.images) if job.images else []
        request = ReadRequest(job, images, f"decision-{next(self._numbers)}")
        try:
            found = await self._strategy.read(request)
        except ApiError:
            raise
        except Exception as failure:
            # vLLM's texts may quote the prompt, which must not get into a log.
            log.error("a read of %s failed: %s", self._model.id, type(failure).__name__)
            raise UPSTREAM_ERROR() from None
        return Readings(found.reads, found.input_tokens, temperature)

    async def _labelled(self, presets: Iterable[Preset]) -> list[measuring.Labelled]:
        """One state after the other, as requests would come."""
        labelled = []
        for preset in presets:
            for example in preset.examples:
                job = DecisionJob(state_text(example.state), tuple(preset.questions.values()))
                found = await self._read(job, 1.0)
                for name, reading in zip(preset.questions, found.reads, strict=True):
                    expected = preset.expected_index(name, example.expected[name])
                    labelled.append(measuring.Labelled(reading, expected))
        return labelled

    def _fingerprint(self, presets: Sequence[Preset]) -> str:
        serving = self._model.serving
        assert serving is not None
        digests = Digests(weights.home_folder() / "weights" / ".digests" / f"{serving.weights}.json")
        files = {name: pin.sha256 for name, pin in pin_all(self._path, digests).items()}
        packs: list[Any] = [preset.model_dump() for preset in presets]
        options = self._options
        how = (PROMPT_VERSION, options.strategy, str(self._engine.model_config.dtype))
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
