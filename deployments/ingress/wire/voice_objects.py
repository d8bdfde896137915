"""A voice as it is answered, in lists and in drafts."""

from __future__ import annotations

from typing import Any

from contract.catalog import SpeechModel
from contract.speech.voices import Voice, VoiceObject
from deployments.ingress.front.admission import Admitted
from deployments.ingress.wire.addresses import signed_address
from state.voices import OwnVoice


async def own_entry(admitted: Admitted, own: OwnVoice) -> VoiceObject:
    """A voice of the caller's organisation; its sample plays for an hour."""
    model = admitted.context.service.speech_engines[own.voice.provider]
    return entry(admitted, own.voice, model, sample_url=await signed_address(admitted, own.sample_blob))


def entry(admitted: Admitted, voice: Voice, model: SpeechModel, **samples: Any) -> VoiceObject:
    """What every voice says of itself, with the `runtime` that speaks here."""
    context = admitted.context
    made: Any = {
        "object": "voice",
        **voice.model_dump(exclude_none=True, exclude={"from_plan"}),
        "languages": list(model.languages),
        "model": model.id,
        "runtime": model.runtime_for(voice.primary_language) if model.serving else None,
        "selectable": voice.selectable(context.caller),
        "available": model in context.offered(context.service.catalog.speech) and _has_sound(model, voice),
        **({"runtimes": model.runtimes} if model.runtimes else {}),
        **samples,
    }
    listed: VoiceObject = made
    return listed


def _has_sound(model: SpeechModel, voice: Voice) -> bool:
    """An organisation's own voice brings its recording with it."""
    return voice.scope == "org" or model.has_voice(voice.slug)
