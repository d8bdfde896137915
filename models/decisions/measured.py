"""MeasuredScorer: what all ways of reading share. It answers once it is measured on the examples of the presets.

A subclass says how a job is read (`read_job`) and what its measurement depends on (`fingerprint`).
"""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Iterable, Sequence

from contract.catalog import DecisionModel
from contract.decisions.engine import DecisionEngine, DecisionJob, Measurement, Readings
from contract.decisions.presets import Preset
from contract.decisions.questions import state_text
from contract.errors import IMAGES_UNSUPPORTED, RUNTIME_UNAVAILABLE
from models.decisions import measuring
from models.weights import store as weights

log = logging.getLogger(f"parlance.{__name__}")


class MeasuredScorer(DecisionEngine):
    """A decision model. Attributes: `version` of its way of reading, in every measurement."""

    version: str

    def __init__(self, model: DecisionModel, *, calibrated: bool, images: bool) -> None:
        self.model = model
        self._calibrated = calibrated
        self._images = images
        self._measured: Measurement | None = None

    async def measure(self, presets: Iterable[Preset]) -> Measurement:
        """Reads the presets' examples, unless an earlier start has with the same weights and wording."""
        presets = list(presets)
        await self.prepare(presets)
        folder = weights.home_folder() / "measurements"
        wanted = await asyncio.to_thread(self.fingerprint, presets)
        kept = measuring.recall(folder, wanted)
        if kept is None:
            kept = measuring.measurement(
                await self._labelled(presets),
                calibrated=self._calibrated,
                fingerprint=wanted,
                prompt_version=self.version,
            )
            measuring.keep(folder, kept)
            log.info("%s measured: accuracy %.2f, label mass %.2f", self.model.id, kept.accuracy, kept.label_mass)
        self._measured = kept
        return kept

    async def measured(self, job: None = None) -> Measurement | None:
        """The measurement, once there is one."""
        return self._measured

    async def decide(self, job: DecisionJob) -> Readings:
        """A reading for each question, in order.

        Raises:
            ApiError: RUNTIME_UNAVAILABLE before a measurement, IMAGES_UNSUPPORTED, and what `read_job` raises.
        """
        if self._measured is None:
            raise RUNTIME_UNAVAILABLE()
        if job.images and not self._images:
            raise IMAGES_UNSUPPORTED(f"model `{self.model.id}` does not read images here; send none", param="images")
        return await self.read_job(job, self._measured.temperature)

    async def prepare(self, presets: Sequence[Preset]) -> None:
        """What a way of reading takes from the presets before it reads anything."""

    @abstractmethod
    async def read_job(self, job: DecisionJob, temperature: float) -> Readings:
        """A reading for each question, in order."""

    @abstractmethod
    def fingerprint(self, presets: Sequence[Preset]) -> str:
        """Of everything that a measurement depends on."""

    async def _labelled(self, presets: Iterable[Preset]) -> list[measuring.Labelled]:
        """One state after the other, as requests would come."""
        labelled = []
        for preset in presets:
            for example in preset.examples:
                job = DecisionJob(state_text(example.state), tuple(preset.questions.values()))
                found = await self.read_job(job, 1.0)
                for name, reading in zip(preset.questions, found.reads, strict=True):
                    expected = preset.expected_index(name, example.expected[name])
                    labelled.append(measuring.Labelled(reading, expected))
        return labelled
