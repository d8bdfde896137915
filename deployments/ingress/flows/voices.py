"""The voices that a caller can see, and samples of fixed ones.

A sample of a fixed voice is made by its engine when it is first played, and kept: anybody may play it. A client
without a key never wakes an engine for it, and never takes more than one of its streams.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from autoscaling.engine import NOBODY, CallContext, owner_name
from concurrency.fairness import QueueFull
from concurrency.semaphore import FairSemaphore
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
    name = f"samples/{model.speaker_of(language).runtime}/{slug}-{language}.mp3"
    now_s = time.monotonic()
    if played := service.played.get(name, now_s):
        return played
    if stored := await service.state.blobs.find(name):
        service.played.put(name, stored, now_s)
        return stored
    engine, slots = service.engine(model), _anonymous if caller is None else _keyed
    call = CallContext(NOBODY if caller is None else owner_name(caller.org_id))
    if caller is not None:
        await service.state.ledger.require_room(caller)
        # Before it waits for a slot: nobody else waits through a cold start.
        await engine.ready(model.serving.wait_s, timings=call.timings)
    try:
        async with slots.of("" if caller is None else call.owner):
            if stored := await service.state.blobs.find(name):
                service.played.put(name, stored, now_s)
                return stored
            if caller is None and not engine.free():
                raise SAMPLE_UNAVAILABLE()
            job = SpeechJob(service.catalog.sentences[language], language, slug, format="mp3", owner=call.owner)
            speech = await engine.call(SpeechEngine.speak_whole, job, context=call)
            await service.state.blobs.put(name, speech.data)
    except QueueFull:
        raise SAMPLE_UNAVAILABLE() from None
    return speech.data


ANONYMOUS_REQUESTS = 8
"""Requests without a key that have samples made for them, in this process, at a time."""
KEYED_REQUESTS = 32
"""The same with a key."""

_anonymous = FairSemaphore(1, all_waiting=ANONYMOUS_REQUESTS - 1)
_keyed = FairSemaphore(1, all_waiting=KEYED_REQUESTS - 1)
"""One sample at a time is made for each of the two, so that no engine has more than two of its slots taken by them."""
