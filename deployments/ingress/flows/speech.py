"""Speaking a text, billed by characters.

prepare(context, request) -> PreparedSpeech engine, voice, language and clip; everything that can be refused
blocks(context, prepared) -> AudioBlock... the file as it is made, or in one piece where its engine promises that
whole_account(context, prepared)           the bill and the job of a file that is sent when it is complete
"""

from __future__ import annotations

import io
import wave
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from audio.sandbox import NotAudio, QueueFull, SharesExhausted, TooLong, decode
from contract.catalog import SpeechModel
from contract.errors import (
    BUSY,
    INVALID_REQUEST,
    NOT_CONFIGURED,
    STREAM_INCOMPLETE,
    UNKNOWN_VOICE,
    UPSTREAM_ERROR,
    ApiError,
)
from contract.limits import SPEECH_CLIP_S
from contract.speech.engine import AudioBlock, Clip, SpeechEngine, SpeechJob
from contract.speech.request import SpeechRequest
from contract.speech.routing import SpeechRoute, choose, job_of
from contract.speech.voices import Voice
from deployments.ingress.context import RequestContext
from deployments.ingress.flows.voices import slug_of, visible_voices
from state.billing.reservation import Account
from state.voices import OwnVoice
from text.language import detect

CLIP_RATE = 24_000
"""Sample rate at which engines get a reference clip, in Hz."""

FIRST_CHARS = 100
"""Of a text: an engine that has said nothing yet is at its first sentence."""


@dataclass(frozen=True, slots=True)
class PreparedSpeech:
    """A request that can be spoken.

    Attributes:
        job: without the clip, which is decoded last: that takes time and a process.
        own: the organisation's own voice that was asked for.
    """

    request: SpeechRequest
    choice: SpeechRoute
    job: SpeechJob
    own: OwnVoice | None

    @property
    def runtime(self) -> str:
        """What truly speaks."""
        has_voice = bool(self.choice.voice or self.request.reference_audio_b64)
        return self.choice.model.speaker_of(self.choice.language, has_voice=has_voice).runtime


async def prepare(context: RequestContext, request: SpeechRequest) -> PreparedSpeech:
    """Chooses the engine and checks everything that it will be given. Errors: docs/api.md#post-audiospeech."""
    voices, own = await visible_voices(context, request.voice)
    request = _by_slug(context, request, voices)
    engines = context.service.speech_engines
    detected = detect(request.input, context.service.spoken_languages)
    choice = choose(request, voices, engines, detected, datetime.now(UTC).date())
    job = replace(job_of(request, choice, engines), owner=context.owner)
    if choice.voice:
        voices[choice.voice].require(context.caller)
    if choice.model not in context.offered(context.service.catalog.speech):
        raise NOT_CONFIGURED()
    return PreparedSpeech(request, choice, job, own)


def _by_slug(context: RequestContext, request: SpeechRequest, voices: Mapping[str, Voice]) -> SpeechRequest:
    """The request with the voice that a name like `alloy` stands for, where such names are turned on."""
    alias = context.service.voice_aliases.get(request.voice or "")
    if alias is None or request.voice in voices:
        return request
    slug = slug_of(context.service, alias)
    return request.model_copy(update={"voice": slug, "language": request.language or alias.language})


def blocks(context: RequestContext, prepared: PreparedSpeech) -> AsyncGenerator[AudioBlock, None]:
    """The file. A client that leaves early pays for what was spoken. Errors: docs/api.md#post-audiospeech."""
    spoken = _in_one_piece if prepared.choice.model.buffers_output else _as_made
    return spoken(context, prepared)


async def _as_made(context: RequestContext, prepared: PreparedSpeech) -> AsyncGenerator[AudioBlock, None]:
    model, total, is_settled = prepared.choice.model, len(prepared.job.text), False
    async with _account(context, model, total, min(total, FIRST_CHARS)) as account:
        job = await _with_clip(context, prepared)
        async with aclosing(context.engine(model).stream(SpeechEngine.speak, job, context=context.call)) as spoken:
            async for block in spoken:
                if not is_settled:
                    await account.progress(characters=block.characters)
                if block.data and block.characters >= total and not is_settled:
                    # What is left is the end of the file; the bill is written before it goes out.
                    await account.settle()
                    is_settled = True
                if block.data:
                    yield block


async def _in_one_piece(context: RequestContext, prepared: PreparedSpeech) -> AsyncGenerator[AudioBlock, None]:
    """One block. Raises STREAM_INCOMPLETE where an engine fails on the way: no byte has gone then."""
    model = prepared.choice.model
    async with whole_account(context, prepared) as (account, job):
        try:
            block = await context.engine(model).call(SpeechEngine.speak_whole, job, context=context.call)
        except ApiError as error:
            if error.fault is UPSTREAM_ERROR:
                raise STREAM_INCOMPLETE() from None
            raise
        await account.settle(characters=len(job.text))
        yield block


@asynccontextmanager
async def whole_account(context: RequestContext, prepared: PreparedSpeech) -> AsyncIterator[tuple[Account, SpeechJob]]:
    """Around calls for a whole file: who leaves once one has begun pays for all of it."""
    total = len(prepared.job.text)
    async with _account(context, prepared.choice.model, total, total) as account:
        yield account, await _with_clip(context, prepared)


@asynccontextmanager
async def _account(context: RequestContext, model: SpeechModel, most: int, begun: int) -> AsyncIterator[Account]:
    """One of the key's streams, and the bill of so many characters at most, and of so many for who leaves early."""
    async with (
        context.service.state.rates.stream(context.caller),
        await context.bill(
            model,
            {"characters": most},
            "characters",
            begun=lambda: {"characters": begun},
            is_stream=not model.buffers_output,
        ) as account,
    ):
        yield account


async def _with_clip(context: RequestContext, prepared: PreparedSpeech) -> SpeechJob:
    """The job with the voice to imitate, where there is one: of the request, or an organisation's own.

    What designed a voice knows how to speak it; other engines imitate its clip.
    """
    own = prepared.own
    if prepared.request.reference_audio_b64 is not None:
        clip = await _sent_clip(context, prepared.request, prepared.request.reference_audio_b64)
    elif own and own.recipe is not None and own.runtime == prepared.choice.model.runtime:
        return replace(prepared.job, recipe=own.recipe, voice=None)
    elif own:
        clip = await _stored_clip(context, own)
    else:
        return prepared.job
    return replace(prepared.job, clip=clip, voice=None)


async def _sent_clip(context: RequestContext, request: SpeechRequest, file: bytes) -> Clip:
    """What a request brought. Raises INVALID_REQUEST, and BUSY where too many clips wait to be decoded."""
    try:
        sound = await decode(file, CLIP_RATE, SPEECH_CLIP_S, owner=context.owner)
    except (QueueFull, SharesExhausted) as error:
        raise BUSY(f"too many {error}; send the request again shortly") from None
    except TooLong as error:
        raise INVALID_REQUEST(
            f"the reference clip lasts {error}; at most {SPEECH_CLIP_S} s are allowed", param="reference_audio_b64"
        ) from None
    except NotAudio as error:
        raise INVALID_REQUEST(
            f"the reference clip cannot be decoded: {error}; send base64 of a wav or flac file",
            param="reference_audio_b64",
        ) from None
    return Clip(bytes(sound.samples), sound.sample_rate, request.prompt_text)


async def _stored_clip(context: RequestContext, own: OwnVoice) -> Clip:
    """A clip of ours: a WAV file that was written here."""
    data = await context.service.state.blobs.find(own.clip_blob)
    if data is None:
        raise UNKNOWN_VOICE(f"voice `{own.voice.slug}` has been deleted", param="voice")
    with wave.open(io.BytesIO(data)) as file:
        return Clip(file.readframes(file.getnframes()), file.getframerate(), own.transcript)
