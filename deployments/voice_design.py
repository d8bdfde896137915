"""A replica that designs voices. Spec 4 (Voice design)."""

from __future__ import annotations

from ray import serve

from contract.voice_design.engine import DesignJob, DesignResult, VoiceDesignEngine
from deployments.replica import Replica


@serve.deployment
class VoiceDesigner(Replica[VoiceDesignEngine]):
    """One designer of the catalogue. Its method is that of `VoiceDesignEngine`."""

    async def design(self, job: DesignJob) -> DesignResult:
        return await self.engine.design(job)
