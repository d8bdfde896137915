"""MeasuredScorer: what all decision models share. It answers once it is measured on the examples of the presets.

A subclass defines how a job is read (`read_job`) and what its measurement depends on (`fingerprint`).
"""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Iterable, Sequence

from contract.catalog import DecisionModel
from contract.decisions.engine import DecisionEngine, DecisionJob, Measurement, Readings
from contract.decisions.questions import Preset, state_text
from contract.errors import IMAGES_UNSUPPORTED, RUNTIME_UNAVAILABLE
from models.decisions import calibration
from models.weights import store as weights

log = logging.getLogger(f"parlance.{__name__}")


class MeasuredScorer(DecisionEngine):
    """A decision model. Attributes: `version` of its way of reading, in every measurement."""

    version: str

    def __init__(self, model: DecisionModel, *, calibrated: bool, images: bool) -> None:
        self.model = model
        self._calibrated = calibrated
        self._images = images
        self._measurement: Measurement | None = None

    async def measure(self, presets: Iterable[Preset]) -> Measurement:
        """Reads the presets' examples, unless an earlier start did so with the same weights and wording."""
        presets = list(presets)
        await self.prepare(presets)
        folder = weights.home_folder() / "measurements"
        fingerprint = await asyncio.to_thread(self.fingerprint, presets)
        result = calibration.load(folder, fingerprint)
        if result is None:
            result = calibration.measurement(
                await self._labelled(presets),
                calibrated=self._calibrated,
                fingerprint=fingerprint,
                prompt_version=self.version,
            )
            calibration.save(folder, result)
            log.info("%s measured: accuracy %.2f, label mass %.2f", self.model.id, result.accuracy, result.label_mass)
        self._measurement = result
        return result

    async def measured(self, job: None = None) -> Measurement | None:
        return self._measurement

    async def decide(self, job: DecisionJob) -> Readings:
        """Raises RUNTIME_UNAVAILABLE before a measurement, IMAGES_UNSUPPORTED, and what `read_job` raises."""
        if self._measurement is None:
            raise RUNTIME_UNAVAILABLE()
        if job.images and not self._images:
            raise IMAGES_UNSUPPORTED(f"model `{self.model.id}` reads no images here", param="images")
        return await self.read_job(job, self._measurement.temperature)

    async def prepare(self, presets: Sequence[Preset]) -> None:
        """Reads what a subclass needs of the presets before it reads a job."""

    @abstractmethod
    async def read_job(self, job: DecisionJob, temperature: float) -> Readings:
        """A reading for each question, in order."""

    @abstractmethod
    def fingerprint(self, presets: Sequence[Preset]) -> str:
        """A hash of everything that a measurement depends on."""

    async def _labelled(self, presets: Iterable[Preset]) -> list[calibration.Labelled]:
        """The examples, read one after the other, as requests would come."""
        labelled = []
        for preset in presets:
            for example in preset.examples:
                job = DecisionJob(state_text(example.state), tuple(preset.questions.values()))
                readings = await self.read_job(job, 1.0)
                for name, reading in zip(preset.questions, readings.reads, strict=True):
                    expected = preset.expected_index(name, example.expected[name])
                    labelled.append(calibration.Labelled(reading, expected))
        return labelled
