"""GET /audio/voices, and samples of voices. Spec 2 (Voice) and 4."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from contract.catalog import SpeechModel
from contract.errors import NOT_FOUND
from contract.speech.request import MEDIA_TYPES
from contract.speech.voices import Voice, VoiceList, VoiceObject, access
from deployments.ingress.addresses import signed_address
from deployments.ingress.admission import Admitted, admit
from deployments.ingress.flows.voices import sample
from deployments.ingress.middleware import trace_of
from deployments.ingress.openapi import documented, documented_audio
from state.voices import OwnVoice

router = APIRouter(tags=["voices"])
open_router = APIRouter(tags=["voices"])
"""Samples are played without a key."""

AnyKey = Annotated[Admitted, Depends(admit(None))]

DAY_S = 86_400


@router.get("/audio/voices", openapi_extra=documented(None, VoiceList))
async def list_voices(admitted: AnyKey) -> Response:
    """List the voices that your organisation can see, and whether it may choose them."""
    service, caller = admitted.context.service, admitted.context.caller
    data = [_fixed(admitted, voice) for voice in service.catalog.voices.values()]
    data += [await _own(admitted, voice) for voice in await service.state.voices.of(caller.org_id)]
    engines = service.speech_engines
    catalogue = {voice.provider: None for voice in service.catalog.voices.values() if voice.from_plan}
    listed: VoiceList = {
        "object": "list",
        "data": data,
        "languages": [code for provider in catalogue for code in engines[provider].languages],
        "languages_by_provider": {name: list(engine.languages) for name, engine in engines.items()},
        "access": access(caller),
    }
    return JSONResponse(listed)


@open_router.get("/audio/voices/{slug}/samples/{language}.mp3", openapi_extra=documented_audio(None, keyed=False))
async def play_sample(request: Request, slug: str, language: str) -> Response:
    """Play a fixed voice's sample in one of its languages, as MP3."""
    service = trace_of(request).service
    voice = service.catalog.voices.get(slug)
    model = service.speech_engines[voice.provider] if voice else None
    if model is None or language not in model.languages:
        raise NOT_FOUND(f"there is no sample at {request.url.path[:200]}")
    data = await sample(service, model, slug, language)
    return Response(data, media_type=MEDIA_TYPES["mp3"], headers={"cache-control": f"public, max-age={DAY_S}"})


def _fixed(admitted: Admitted, voice: Voice) -> VoiceObject:
    model = admitted.context.service.speech_engines[voice.provider]
    prefix = "/v1" if admitted.request.url.path.startswith("/v1/") else ""
    samples = {code: f"{prefix}/audio/voices/{voice.slug}/samples/{code}.mp3" for code in model.languages}
    return _entry(admitted, voice, model, samples=samples, sample_url=None)


async def _own(admitted: Admitted, own: OwnVoice) -> VoiceObject:
    model = admitted.context.service.speech_engines[own.voice.provider]
    return _entry(admitted, own.voice, model, sample_url=await signed_address(admitted, own.sample_blob))


def _entry(admitted: Admitted, voice: Voice, model: SpeechModel, **samples: Any) -> VoiceObject:
    """What every voice says of itself, with the `runtime` that speaks here."""
    context = admitted.context
    entry: Any = {
        "object": "voice",
        **voice.model_dump(exclude_none=True, exclude={"from_plan"}),
        "languages": list(model.languages),
        "model": model.id,
        "runtime": model.runtime_for(voice.primary_language) if model.serving else None,
        "selectable": voice.selectable(context.caller),
        "available": model in context.offered(context.service.catalog.speech),
        **({"runtimes": model.runtimes} if model.runtimes else {}),
        **samples,
    }
    listed: VoiceObject = entry
    return listed
