"""GET /audio/voices, and samples of voices. Spec 2 (Voice) and 4.

A sample of a fixed voice is made by its engine when it is first asked for, and kept: anybody may play it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

from contract.replies import VoiceListReply
from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from autoscaling.gate import Timings
from contract.catalog import SpeechModel
from contract.errors import NOT_CONFIGURED, NOT_FOUND
from contract.speech.engine import AudioBlock, SpeechJob
from contract.speech.request import MEDIA_TYPES
from contract.speech.voices import SYSTEM_VOICES, Voice, access
from deployments.ingress.admission import Admitted, admit
from deployments.ingress.exchange import exchange_of
from deployments.ingress.files import signed_address
from deployments.ingress.openapi import documented, documented_audio
from deployments.ingress.service import Service
from state.voices import OwnVoice

router = APIRouter(tags=["voices"])
open_router = APIRouter(tags=["voices"])
"""Samples are played without a key."""

AnyKey = Annotated[Admitted, Depends(admit(None))]

DAY_S = 86_400

_one_sample_at_a_time = asyncio.Lock()
"""Whoever plays samples needs no key, so they may never take more than one stream of an engine."""


@router.get("/audio/voices", openapi_extra=documented(None, VoiceListReply))
async def list_voices(admitted: AnyKey) -> Response:
    """List the voices that your organisation can see, and whether it may choose them."""
    service, caller = admitted.service, admitted.caller
    data = [_fixed(admitted, voice) for voice in service.catalog.voices.values()]
    data += [await _own(admitted, voice) for voice in await service.state.voices.of(caller.org_id)]
    engines = service.speech_engines
    catalogue = {voice.provider: None for voice in service.catalog.voices.values() if voice.from_plan}
    return JSONResponse(
        {
            "object": "list",
            "data": data,
            "languages": [code for provider in catalogue for code in engines[provider].languages],
            "languages_by_provider": {name: list(engine.languages) for name, engine in engines.items()},
            "access": access(caller),
        }
    )


async def visible_voices(admitted: Admitted, slug: str | None) -> tuple[Mapping[str, Voice], OwnVoice | None]:
    """The platform's voices, and with them the organisation's own voice `slug` if that is one."""
    fixed = admitted.service.catalog.voices
    if slug is None or slug in fixed or slug in SYSTEM_VOICES:
        return fixed, None
    own = await admitted.service.state.voices.find(admitted.caller.org_id, slug)
    return (fixed if own is None else {**fixed, slug: own.voice}), own


@open_router.get("/audio/voices/{slug}/samples/{language}.mp3", openapi_extra=documented_audio(None, keyed=False))
async def play_sample(request: Request, slug: str, language: str) -> Response:
    """Play a fixed voice's sample in one of its languages, as MP3."""
    service = exchange_of(request).service
    voice = service.catalog.voices.get(slug)
    model = service.speech_engines[voice.provider] if voice else None
    if model is None or language not in model.languages:
        raise NOT_FOUND(f"there is no sample at {request.url.path[:200]}")
    data = await _sample(service, model, slug, language)
    return Response(data, media_type=MEDIA_TYPES["mp3"], headers={"cache-control": f"public, max-age={DAY_S}"})


async def _sample(service: Service, model: SpeechModel, slug: str, language: str) -> bytes:
    """Kept under what ran: another engine behind the same voice makes its own."""
    if model.serving is None:
        raise NOT_CONFIGURED()
    name = f"samples/{model.serving.runtime}/{slug}-{language}.mp3"
    if kept := await service.state.blobs.find(name):
        return kept
    async with _one_sample_at_a_time:
        if kept := await service.state.blobs.find(name):
            return kept
        utterance = SpeechJob(service.catalog.sentences[language], language, slug, format="mp3")
        made: AudioBlock = await service.engine(model).call("speak_whole", utterance, timings=Timings())
        await service.state.blobs.put(name, made.data)
    return made.data


def _fixed(admitted: Admitted, voice: Voice) -> dict[str, Any]:
    model = admitted.service.speech_engines[voice.provider]
    prefix = "/v1" if admitted.request.url.path.startswith("/v1/") else ""
    samples = {code: f"{prefix}/audio/voices/{voice.slug}/samples/{code}.mp3" for code in model.languages}
    return _entry(admitted, voice, model) | {"samples": samples, "sample_url": None}


async def _own(admitted: Admitted, own: OwnVoice) -> dict[str, Any]:
    model = admitted.service.speech_engines[own.voice.provider]
    return _entry(admitted, own.voice, model) | {"sample_url": await signed_address(admitted, own.sample_blob)}


def _entry(admitted: Admitted, voice: Voice, model: SpeechModel) -> dict[str, Any]:
    """What every voice says of itself, with the `runtime` that speaks here."""
    available = model in admitted.service.offered(admitted.service.catalog.speech, admitted.caller)
    about = voice.model_dump(exclude_none=True, exclude={"from_plan"})
    return {
        "object": "voice",
        **about,
        "languages": list(model.languages),
        "model": model.id,
        "runtime": model.serving.runtime if model.serving else None,
        "selectable": voice.selectable(admitted.caller),
        "available": available,
    }
