"""The voices that a caller can see, and samples of fixed ones. Spec 2 (Voice) and 4.

A sample of a fixed voice is made by its engine when it is first played, and kept: anybody may play it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from autoscaling.engine import Timings
from contract.catalog import SpeechModel
from contract.errors import NOT_CONFIGURED
from contract.speech.engine import SpeechEngine, SpeechJob
from contract.speech.voices import SYSTEM_VOICES, Voice
from deployments.ingress.context import RequestContext
from deployments.ingress.service import Service
from state.voices import OwnVoice

_one_sample_at_a_time = asyncio.Lock()
"""Whoever plays samples needs no key, so they may never take more than one stream of an engine."""


async def visible_voices(context: RequestContext, slug: str | None) -> tuple[Mapping[str, Voice], OwnVoice | None]:
    """The platform's voices, and with them the organisation's own voice `slug` if that is one."""
    fixed = context.service.catalog.voices
    if slug is None or slug in fixed or slug in SYSTEM_VOICES:
        return fixed, None
    own = await context.service.state.voices.find(context.caller.org_id, slug)
    return (fixed if own is None else {**fixed, slug: own.voice}), own


async def sample(service: Service, model: SpeechModel, slug: str, language: str) -> bytes:
    """MP3 of a fixed voice. Kept under what ran: another engine behind the same voice makes its own.

    Raises NOT_CONFIGURED, and what the engine answers.
    """
    if model.serving is None:
        raise NOT_CONFIGURED()
    name = f"samples/{model.runtime_for(language)}/{slug}-{language}.mp3"
    if kept := await service.state.blobs.find(name):
        return kept
    async with _one_sample_at_a_time:
        if kept := await service.state.blobs.find(name):
            return kept
        job = SpeechJob(service.catalog.sentences[language], language, slug, format="mp3")
        made = await service.engine(model).call(SpeechEngine.speak_whole, job, timings=Timings())
        await service.state.blobs.put(name, made.data)
    return made.data
