"""A decision scorer replica. Spec 4 (decision engine)."""

from __future__ import annotations

from collections.abc import Sequence

from ray import serve

from contract.catalog import DecisionModel
from contract.decisions.engine import Measurement, Readings
from contract.decisions.presets import Preset
from contract.decisions.questions import Question
from deployments.replica import Replica


@serve.deployment
class Scorer(Replica):
    """One decision model of the catalogue. Its constructor ends when the runtime is measured."""

    async def __init__(self, model: DecisionModel, presets: Sequence[Preset]) -> None:  # type: ignore[misc]  # Serve awaits it
        super().__init__(model)
        await self.adapter.measure(presets)

    async def decide(
        self, state: str, questions: Sequence[Question], images: Sequence[str] = (), cache_salt: str | None = None
    ) -> Readings:
        """What the model read for each question, in order."""
        readings: Readings = await self.adapter.decide(state, questions, images, cache_salt)
        return readings

    async def measured(self) -> Measurement:
        """The measurement under which this replica answers."""
        measurement: Measurement = await self.adapter.measured()
        return measurement
