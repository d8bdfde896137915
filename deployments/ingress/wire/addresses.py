"""Addresses that clients get: signed ones of bytes, and voices with samples at such addresses."""

from __future__ import annotations

from typing import Any, Literal
from urllib.parse import urlsplit

from starlette.requests import Request

from contract.catalog import SpeechModel
from contract.speech.voices import SAMPLE_ADDRESS_S, Voice, VoiceObject
from deployments.ingress.context import exchange_of
from deployments.ingress.front.admission import Admitted
from state.voices import OwnVoice


def public_address(text: str) -> str:
    """`text` without a slash at its end. Raises ValueError unless it is an http(s) address of host and path only."""
    try:
        parts = urlsplit(text)
        is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_whole = False
    plain = text.isascii() and text.isprintable() and not set(text) & set(' ?#@\\"<>')
    if not is_whole or not plain:
        raise ValueError(
            f"{text[:100]!r} is not a public address; it must look like https://api.example.org or "
            "https://example.org/voice"
        )
    return text.rstrip("/")


async def signed_address(admitted: Admitted, name: str) -> str:
    """An address that plays the blob `name` for an hour, without a key."""
    state = admitted.context.service.state
    if elsewhere := await state.blobs.presign(name, SAMPLE_ADDRESS_S):
        return elsewhere
    return own_address(admitted.request, name, int(state.clock()) + SAMPLE_ADDRESS_S, "GET")


def own_address(request: Request, name: str, expires_at: int, method: Literal["GET", "PUT"]) -> str:
    """An address at this server that allows `method` on `name`, without a key, until `expires_at`."""
    service = exchange_of(request.scope).service
    query = service.state.signatures.sign(name, expires_at, method)
    base = service.public_url or str(request.base_url).rstrip("/")  # where the client says it reached us
    return f"{base}/files/{name}?{query}"


async def own_entry(admitted: Admitted, own: OwnVoice) -> VoiceObject:
    """A voice of the caller's organisation; its sample plays for an hour."""
    model = admitted.context.service.speech_engines[own.voice.provider]
    return entry(admitted, own.voice, model, sample_url=await signed_address(admitted, own.sample_blob))


def entry(admitted: Admitted, voice: Voice, model: SpeechModel, **samples: Any) -> VoiceObject:
    """Description of every voice, with the `runtime` that speaks here."""
    context = admitted.context
    has_sound = voice.scope == "org" or model.has_voice(voice.slug)  # one of an organisation brings its recording
    body: Any = {
        "object": "voice",
        **voice.model_dump(exclude_none=True, exclude={"from_plan"}),
        "languages": list(model.languages),
        "model": model.id,
        "runtime": model.speaker_of(voice.primary_language).runtime if model.serving else None,
        "selectable": voice.selectable(context.caller),
        "available": model in context.offered(context.service.catalog.speech) and has_sound,
        **({"runtimes": runtimes} if (runtimes := model.runtimes(has_voice=True)) else {}),
        **samples,
    }
    listed: VoiceObject = body
    return listed
