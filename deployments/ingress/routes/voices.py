"""GET /audio/voices, and samples of voices."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from contract.errors import NOT_FOUND
from contract.limits import KEYLESS_BODY_BYTES
from contract.speech.request import MEDIA_TYPES
from contract.speech.voices import Voice, VoiceList, VoiceObject, access
from deployments.ingress.context import exchange_of
from deployments.ingress.flows.speech import sample, slug_of
from deployments.ingress.front.admission import Admitted, AnyKey, admit_anyone, any_key
from deployments.ingress.wire.addresses import entry, own_entry
from deployments.ingress.wire.openapi import documented, documented_audio

router = APIRouter(tags=["voices"])
open_router = APIRouter(tags=["voices"])
"""Samples are played without a key."""

DAY_S = 86_400


@router.get("/audio/voices", openapi_extra=documented(None, VoiceList))
async def list_voices(admitted: AnyKey) -> Response:
    """List the voices that your organisation can see, and whether it may choose them."""
    service, caller = admitted.context.service, admitted.context.caller
    data = [_fixed(admitted, voice) for voice in service.catalog.voices.values()]
    data += [await own_entry(admitted, voice) for voice in await service.state.voices.of(caller.org_id)]
    engines = service.speech_engines
    catalogue = {voice.provider: None for voice in service.catalog.voices.values() if voice.from_plan}
    listed: VoiceList = {
        "object": "list",
        "data": data,
        "languages": [code for provider in catalogue for code in engines[provider].languages],
        "languages_by_provider": {name: list(engine.languages) for name, engine in engines.items()},
        "aliases": {name: slug_of(service, alias) for name, alias in service.voice_aliases.items()},
        "access": access(caller),
    }
    return JSONResponse(listed)


@open_router.get("/audio/voices/{slug}/samples/{language}.mp3", openapi_extra=documented_audio(None, keyed=False))
async def play_sample(request: Request, slug: str, language: str) -> Response:
    """Play a fixed voice's sample in one of its languages, as MP3. Without a key, no engine wakes up to make it."""
    # Samples need no key; a request with one may wake an engine for them.
    caller = (await any_key(request)).context.caller if "authorization" in request.headers else None
    if caller is None:
        await admit_anyone(request, KEYLESS_BODY_BYTES)
    service = exchange_of(request.scope).service
    voice = service.catalog.voices.get(slug)
    model = service.speech_engines[voice.provider] if voice else None
    if model is None or language not in model.languages:
        raise NOT_FOUND(f"there is no sample at {request.scope['path'][:200]}")
    data = await sample(service, model, slug, language, caller)
    return Response(data, media_type=MEDIA_TYPES["mp3"], headers={"cache-control": f"public, max-age={DAY_S}"})


def _fixed(admitted: Admitted, voice: Voice) -> VoiceObject:
    model = admitted.context.service.speech_engines[voice.provider]
    prefix = "/v1" if admitted.request.scope["path"].startswith("/v1/") else ""
    samples = {code: f"{prefix}/audio/voices/{voice.slug}/samples/{code}.mp3" for code in model.languages}
    return entry(admitted, voice, model, samples=samples, sample_url=None)
