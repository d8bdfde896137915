"""A decision scorer replica. Spec 4 (decision engine)."""

from __future__ import annotations

from collections.abc import Sequence

from ray import serve

from contract.catalog import DecisionModel
from contract.decisions.engine import DecisionEngine, DecisionJob, Measurement, Readings
from contract.decisions.presets import Preset
from deployments.replica import Replica


@serve.deployment
class Scorer(Replica[DecisionEngine]):
    """One decision model of the catalogue. Its methods are those of `DecisionEngine`.

    The constructor ends when the runtime is measured.
    """

    async def __init__(self, model: DecisionModel, presets: Sequence[Preset]) -> None:  # type: ignore[misc]  # Serve awaits it
        super().__init__(model)
        await self._adapter.measure(presets)

    async def decide(self, job: DecisionJob) -> Readings:
        return await self.engine.decide(job)

    async def measured(self, job: None = None) -> Measurement | None:
        return await self.engine.measured(job)
