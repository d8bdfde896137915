"""The voices that a caller can see, and samples of fixed ones.

A sample of a fixed voice is made by its engine when it is first played, and kept: anybody may play it. A client
without a key never wakes an engine for it, and never takes more than one of its streams.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from autoscaling.engine import NOBODY, Timings
from contract.access import Caller
from contract.catalog import SpeechModel
from contract.errors import NOT_CONFIGURED, SAMPLE_UNAVAILABLE
from contract.speech.engine import SpeechEngine, SpeechJob
from contract.speech.voices import SYSTEM_VOICES, Voice, VoiceAlias
from deployments.ingress.context import RequestContext, Service
from state.voices import OwnVoice


async def visible_voices(context: RequestContext, slug: str | None) -> tuple[Mapping[str, Voice], OwnVoice | None]:
    """The platform's voices, and with them the organisation's own voice `slug` if that is one."""
    fixed = context.service.catalog.voices
    if slug is None or slug in fixed or slug in SYSTEM_VOICES:
        return fixed, None
    own = await context.service.state.voices.find(context.caller.org_id, slug)
    return (fixed if own is None else {**fixed, slug: own.voice}), own


def slug_of(service: Service, alias: VoiceAlias) -> str:
    """Who speaks for a name that is no voice of ours: the first whose engine is set up, else the first."""
    engines, voices = service.speech_engines, service.catalog.voices
    here = (slug for slug in alias.voices if engines[voices[slug].provider].serving)
    return next(here, alias.voices[0])


async def sample(service: Service, model: SpeechModel, slug: str, language: str, caller: Caller | None) -> bytes:
    """MP3 of a fixed voice. Kept under what ran: another engine behind the same voice makes its own.

    Without a caller it is made only if the engine runs and has nothing better to do. What was played lately is in
    memory, so that clients without a key cost no read of the store each time.

    Raises NOT_CONFIGURED, SAMPLE_UNAVAILABLE, a spend limit of the caller, and what the engine answers.
    """
    if model.serving is None:
        raise NOT_CONFIGURED()
    name = f"samples/{model.runtime_for(language)}/{slug}-{language}.mp3"
    now_s = time.monotonic()
    if played := service.played.get(name, now_s):
        return played
    if stored := await service.state.blobs.find(name):
        service.played.put(name, stored, now_s)
        return stored
    engine, turns = service.engine(model), _anonymous_turns if caller is None else _caller_turns
    timings = Timings(organisation=NOBODY if caller is None else caller.org_id)
    if caller is not None:
        await service.state.ledger.require_room(caller)
        # Before the turn begins: nobody else waits through a cold start.
        await engine.ready(model.serving.wait_s, timings=timings)
    async with turns.one():
        if stored := await service.state.blobs.find(name):
            service.played.put(name, stored, now_s)
            return stored
        if caller is None and not engine.free():
            raise SAMPLE_UNAVAILABLE()
        job = SpeechJob(service.catalog.sentences[language], language, slug, format="mp3")
        block = await engine.call(SpeechEngine.speak_whole, job, timings=timings)
        await service.state.blobs.put(name, block.data)
    return block.data


class _Turns:
    """One sample at a time in this process, and a bounded number of requests that wait for it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._present = 0
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """A turn. Raises SAMPLE_UNAVAILABLE where `most` requests have one or wait for it."""
        if self._present >= self._most:
            raise SAMPLE_UNAVAILABLE()
        self._present += 1
        try:
            async with self._turn:
                yield
        finally:
            self._present -= 1


ANONYMOUS_CLIENTS = 8
"""Requests without a key that have samples made for them, in this process, at a time."""
CALLERS = 32
"""The same with a key."""

_anonymous_turns, _caller_turns = _Turns(ANONYMOUS_CLIENTS), _Turns(CALLERS)
