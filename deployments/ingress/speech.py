"""POST /audio/speech. Spec 4 and 7 (Speech)."""

from __future__ import annotations

import base64
import io
import json
import wave
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import Response

from audio.sandbox import NotAudio, TooLong, decode
from contract.access import Scope
from contract.catalog import SpeechModel
from contract.errors import (
    INVALID_REQUEST,
    NOT_CONFIGURED,
    STREAM_INCOMPLETE,
    UNKNOWN_VOICE,
    UPSTREAM_ERROR,
    ApiError,
)
from contract.limits import SPEECH_CLIP_S
from contract.speech.engine import AudioBlock, Clip, SpeechJob
from contract.speech.marks import prepared
from contract.speech.request import MEDIA_TYPES, SpeechRequest
from contract.speech.routing import Choice, choose
from deployments.ingress.admission import Admitted, admit
from deployments.ingress.billing import Account, bill
from deployments.ingress.events import event_stream
from deployments.ingress.language import detect
from deployments.ingress.openapi import documented_audio
from deployments.ingress.streams import byte_stream
from deployments.ingress.voices import visible_voices
from state.voices import OwnVoice

router = APIRouter(tags=["speech"])

Speaking = Annotated[Admitted, Depends(admit(Scope.SPEECH))]

CLIP_RATE = 24_000
"""Sample rate at which engines get a reference clip, in Hz."""


@router.post("/audio/speech", openapi_extra=documented_audio(SpeechRequest))
async def speak(admitted: Speaking) -> Response:
    """Speak a text: the bytes of an audio file as they are made, or with `stream_format: "sse"` as events."""
    request = await admitted.body(SpeechRequest)
    voices, own = await visible_voices(admitted, request.voice)
    engines = admitted.service.speech_engines
    choice = choose(request, voices, engines, detect, datetime.now(UTC).date())
    text = prepared(request.input, choice.model, engines.values())
    clip = await _clip(admitted, request, own)
    if choice.voice:
        voices[choice.voice].require(admitted.caller)
    if choice.model not in admitted.service.offered(admitted.service.catalog.speech, admitted.caller):
        raise NOT_CONFIGURED()
    utterance = SpeechJob(
        text,
        choice.language,
        None if clip else choice.voice,
        clip,
        style=request.emotion if choice.model.has_style else None,
        speed=request.speed if choice.model.has_speed and request.speed is not None else 1.0,
        format=choice.format,
    )
    return await _reply(admitted, request, choice, utterance)


async def _reply(admitted: Admitted, request: SpeechRequest, choice: Choice, utterance: SpeechJob) -> Response:
    blocks = _in_one_piece if choice.model.in_one_piece else _as_made
    source = blocks(admitted, choice, utterance)
    headers = _headers(admitted, request, choice)
    if request.stream_format == "sse":
        return await event_stream(_events(source), headers)
    return await byte_stream(_bytes(source), MEDIA_TYPES[choice.format], headers)


async def _as_made(admitted: Admitted, choice: Choice, utterance: SpeechJob) -> AsyncGenerator[AudioBlock, None]:
    """Blocks as the engine makes them. Whoever leaves early pays for what was spoken until then."""
    total = len(utterance.text)
    async with _account(admitted, choice.model, total) as account:
        engine = admitted.service.engine(choice.model)
        blocks = engine.stream("speak", utterance, timings=admitted.exchange.timings)
        is_settled = False
        try:
            block: AudioBlock
            async for block in blocks:
                if not is_settled:
                    await account.progress(characters=block.characters)
                if block.characters >= total and not is_settled:
                    # What is left is the end of the file; the bill is written before it goes out.
                    await account.settle()
                    is_settled = True
                yield block
        finally:
            await blocks.aclose()


async def _in_one_piece(admitted: Admitted, choice: Choice, utterance: SpeechJob) -> AsyncGenerator[AudioBlock, None]:
    """The whole file as one block. Raises STREAM_INCOMPLETE where an engine fails on the way: no byte has gone then."""
    total = len(utterance.text)
    async with _account(admitted, choice.model, total) as account:
        engine = admitted.service.engine(choice.model)
        try:
            block: AudioBlock = await engine.call("speak_whole", utterance, timings=admitted.exchange.timings)
        except ApiError as error:
            if error.fault is UPSTREAM_ERROR:
                raise STREAM_INCOMPLETE() from None
            raise
        await account.settle(characters=total)
        yield block


@asynccontextmanager
async def _account(admitted: Admitted, model: SpeechModel, characters: int) -> AsyncIterator[Account]:
    """One of the key's streams, and the bill of so many characters at most."""
    async with (
        admitted.service.state.rates.stream(admitted.caller),
        bill(admitted, model, {"characters": characters}, "characters") as account,
    ):
        yield account


async def _bytes(source: AsyncGenerator[AudioBlock, None]) -> AsyncGenerator[bytes, None]:
    try:
        async for block in source:
            yield block.data
    finally:
        await source.aclose()


async def _events(source: AsyncGenerator[AudioBlock, None]) -> AsyncGenerator[bytes, None]:
    """The third party's events: `speech.audio.delta` with base64, then `speech.audio.done`.

    Its `usage` counts tokens, of which there are none; what is billed stands beside them.
    """
    block = AudioBlock(b"", 0, 0.0)
    try:
        async for block in source:
            yield _event({"type": "speech.audio.delta", "audio": base64.b64encode(block.data).decode()})
    finally:
        await source.aclose()
    usage: dict[str, float] = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
    usage |= {"characters": block.characters, "seconds": round(block.seconds, 3)}
    yield _event({"type": "speech.audio.done", "usage": usage})


def _event(content: dict[str, object]) -> bytes:
    return b"data: " + json.dumps(content).encode() + b"\n\n"


async def _clip(admitted: Admitted, request: SpeechRequest, own: OwnVoice | None) -> Clip | None:
    """The voice to imitate: of the request, or of an organisation's own voice. Raises INVALID_REQUEST."""
    if request.reference_audio_b64 is None:
        return await _stored_clip(admitted, own) if own else None
    try:
        sound = await decode(request.reference_audio_b64, CLIP_RATE, SPEECH_CLIP_S)
    except TooLong as error:
        raise INVALID_REQUEST(
            f"the reference clip lasts {error}; at most {SPEECH_CLIP_S} s are allowed", param="reference_audio_b64"
        ) from None
    except NotAudio as error:
        raise INVALID_REQUEST(
            f"the reference clip cannot be decoded: {error}; send base64 of a wav or flac file",
            param="reference_audio_b64",
        ) from None
    return Clip(sound.samples, sound.sample_rate, request.prompt_text)


async def _stored_clip(admitted: Admitted, own: OwnVoice) -> Clip:
    """A clip of ours: a WAV file that was written here."""
    data = await admitted.service.state.blobs.find(own.clip_blob)
    if data is None:
        raise UNKNOWN_VOICE(f"voice `{own.voice.slug}` has been deleted", param="voice")
    with wave.open(io.BytesIO(data)) as file:
        return Clip(file.readframes(file.getnframes()), file.getframerate(), own.transcript)


def _headers(admitted: Admitted, request: SpeechRequest, choice: Choice) -> dict[str, str]:
    """Who spoke, as what, and what truly ran."""
    serving = choice.model.serving
    assert serving is not None, "only engines that are set up speak"
    prefix = admitted.service.header_prefix
    headers = {
        "X-Voice-Provider": choice.model.provider,
        "X-Voice": choice.spoken_as,
        f"{prefix}model-served": serving.runtime,
    }
    if choice.model.obeys_language:
        headers["X-Voice-Language"] = choice.language
    if request.model and request.model != serving.runtime:
        headers[f"{prefix}model-requested"] = _header_safe(request.model)
    return headers


def _header_safe(text: str) -> str:
    """A client's text as a header value: one line of Latin-1, not endless."""
    return "".join(char if " " <= char <= "~" else "?" for char in text)[:200]
