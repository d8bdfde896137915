"""Speaking a text, billed by characters; the voices that a caller can see, and samples of fixed ones.

prepare(context, request) -> PreparedSpeech engine, voice, language and clip; everything that can be refused
blocks(context, prepared) -> AudioBlock... the file as it is made, or in one piece where its engine promises that
whole_bill(context, prepared)              the bill and the job of a file that is sent when it is complete
sample(service, model, slug, ...) -> MP3   of a fixed voice

A sample of a fixed voice is made by its engine when it is first played, and kept: anybody may play it. A client
without a key never wakes an engine for it, and never takes more than one of its streams.
"""

from __future__ import annotations

import io
import time
import wave
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from audio.listener import ListenerFailed
from audio.sandbox import NotAudio, QueueFull, SharesExhausted, TooLong, decode
from autoscaling.engine import NOBODY, CallContext, owner_name
from concurrency.semaphore import FairSemaphore
from contract.access import Caller
from contract.catalog import SpeechModel
from contract.errors import (
    BUSY,
    INVALID_REQUEST,
    NOT_CONFIGURED,
    SAMPLE_UNAVAILABLE,
    STREAM_INCOMPLETE,
    UNKNOWN_VOICE,
    UPSTREAM_ERROR,
    ApiError,
)
from contract.limits import SPEECH_CLIP_S, SPEECH_CLIP_VOICE_S
from contract.speech.engine import AudioBlock, Clip, SpeechEngine, SpeechJob
from contract.speech.request import SpeechRequest
from contract.speech.routing import SpeechRoute, choose, job_of
from contract.speech.tags import prepared as without_tags
from contract.speech.tags import tags_of
from contract.speech.voices import SYSTEM_VOICES, Voice, VoiceAlias
from deployments.ingress.context import RequestContext, Service
from state.billing.reservation import OpenBill
from state.voices import OwnVoice
from text.language import detect
from text.speakable import speakable

CLIP_RATE = 24_000
"""Sample rate at which engines get a reference clip, in Hz."""

FIRST_CHARS = 100
"""Of a text: an engine that has said nothing yet is at its first sentence."""


ANONYMOUS_REQUESTS = 8
"""Requests without a key that have samples made for them, in this process, at a time."""
KEYED_REQUESTS = 32
"""The same with a key."""

_anonymous = FairSemaphore(1, all_waiting=ANONYMOUS_REQUESTS - 1)
_keyed = FairSemaphore(1, all_waiting=KEYED_REQUESTS - 1)
"""One sample at a time is made for each of the two, so that no engine has more than two of its slots taken by them."""


@dataclass(frozen=True, slots=True)
class PreparedSpeech:
    """A request that can be spoken.

    Attributes:
        job: without the clip, which is decoded last: that takes time and a process.
        characters: length of the text as it was sent, without marks of other engines: the bill once all is spoken.
        own: the organisation's own voice that was asked for.
    """

    request: SpeechRequest
    choice: SpeechRoute
    job: SpeechJob
    characters: int
    own: OwnVoice | None

    def billed(self, block: AudioBlock) -> AudioBlock:
        """The block with its share of `characters`, which are more or fewer than those of the spoken text."""
        return replace(block, characters=block.characters * self.characters // len(self.job.text))

    @property
    def runtime(self) -> str:
        """Name of the runtime that speaks."""
        has_voice = bool(self.choice.voice or self.request.reference_audio_b64)
        return self.choice.model.speaker_of(self.choice.language, has_voice=has_voice).runtime


async def visible_voices(context: RequestContext, slug: str | None) -> tuple[Mapping[str, Voice], OwnVoice | None]:
    """The platform's voices, and with them the organisation's own voice `slug` if that is one."""
    fixed = context.service.catalog.voices
    if slug is None or slug in fixed or slug in SYSTEM_VOICES:
        return fixed, None
    own = await context.service.state.voices.find(context.caller.org_id, slug)
    return (fixed if own is None else {**fixed, slug: own.voice}), own


def slug_of(service: Service, alias: VoiceAlias) -> str:
    """Returns the engine for a name that is no voice here: the first that is set up, else the first."""
    engines, voices = service.speech_engines, service.catalog.voices
    return next((slug for slug in alias.voices if engines[voices[slug].provider].serving), alias.voices[0])


async def prepare(context: RequestContext, request: SpeechRequest) -> PreparedSpeech:
    """Chooses the engine and checks everything that it will be given. Errors: docs/api.md#post-audiospeech."""
    voices, own = await visible_voices(context, request.voice)
    alias = context.service.voice_aliases.get(request.voice or "")
    if alias and request.voice not in voices:  # a name like `alloy`, where such names are turned on
        slug = slug_of(context.service, alias)
        request = request.model_copy(update={"voice": slug, "language": request.language or alias.language})
    engines = context.service.speech_engines
    detected = detect(request.input, context.service.spoken_languages)
    choice = choose(request, voices, engines, detected, datetime.now(UTC).date())
    spoken = speakable(request.input, choice.language, tags_of(choice.model))
    job = job_of(request.model_copy(update={"input": spoken}), choice, engines)
    characters = len(without_tags(request.input, choice.model, engines.values()))
    if choice.voice:
        voices[choice.voice].require(context.caller)
    if choice.model not in context.offered(context.service.catalog.speech):
        raise NOT_CONFIGURED()
    return PreparedSpeech(request, choice, replace(job, owner=context.owner), characters, own)


def blocks(context: RequestContext, prepared: PreparedSpeech) -> AsyncGenerator[AudioBlock, None]:
    """The file. A client that leaves early pays for what was spoken. Errors: docs/api.md#post-audiospeech."""
    spoken = _in_one_piece if prepared.choice.model.buffers_output else _stream_blocks
    return spoken(context, prepared)


async def _stream_blocks(context: RequestContext, prepared: PreparedSpeech) -> AsyncGenerator[AudioBlock, None]:
    model, total, is_settled = prepared.choice.model, prepared.characters, False
    async with _open_bill(context, model, total, min(total, FIRST_CHARS)) as bill:
        job = await _with_clip(context, prepared)
        async with aclosing(context.engine(model).stream(SpeechEngine.speak, job, context=context.call)) as spoken:
            async for part in spoken:
                block = prepared.billed(part)
                if not is_settled:
                    await bill.progress(characters=block.characters)
                if block.data and block.characters >= total and not is_settled:
                    # What is left is the end of the file; the bill is written before it goes out.
                    await bill.settle()
                    is_settled = True
                if block.data:
                    yield block


async def _in_one_piece(context: RequestContext, prepared: PreparedSpeech) -> AsyncGenerator[AudioBlock, None]:
    """One block. Raises STREAM_INCOMPLETE where an engine fails on the way: no byte has gone then."""
    model = prepared.choice.model
    async with whole_bill(context, prepared) as (bill, job):
        try:
            spoken = await context.engine(model).call(SpeechEngine.speak_whole, job, context=context.call)
        except ApiError as error:
            if error.fault is UPSTREAM_ERROR:
                raise STREAM_INCOMPLETE() from None
            raise
        block = prepared.billed(spoken)
        await bill.settle(characters=prepared.characters)
        yield block


@asynccontextmanager
async def whole_bill(context: RequestContext, prepared: PreparedSpeech) -> AsyncIterator[tuple[OpenBill, SpeechJob]]:
    """Around calls for a whole file: a client that leaves once one has begun pays for all of it."""
    total = prepared.characters
    async with _open_bill(context, prepared.choice.model, total, total) as bill:
        yield bill, await _with_clip(context, prepared)


@asynccontextmanager
async def _open_bill(context: RequestContext, model: SpeechModel, most: int, begun: int) -> AsyncIterator[OpenBill]:
    """One of the key's streams, and the bill: of `most` characters, or `begun` of a client that leaves early."""
    async with (
        context.service.state.rates.stream(context.caller),
        await context.bill(
            model,
            {"characters": most},
            "characters",
            begun=lambda: {"characters": begun},
            is_stream=not model.buffers_output,
        ) as bill,
    ):
        yield bill


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
    """The clip of a request. Raises INVALID_REQUEST, and BUSY where too many clips wait to be decoded."""
    try:
        sound = await decode(file, CLIP_RATE, SPEECH_CLIP_S, owner=context.owner)
        samples = bytes(sound.samples)
        voice_s = await context.service.live.listener.speech_s(samples, CLIP_RATE, context.owner)
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
    except ListenerFailed:
        raise UPSTREAM_ERROR() from None
    if voice_s < SPEECH_CLIP_VOICE_S:
        raise INVALID_REQUEST(
            f"the reference clip has {voice_s:.2f} s of speech; a voice to imitate needs at least "
            f"{SPEECH_CLIP_VOICE_S} s, and 10 to 20 s of one speaker are best",
            param="reference_audio_b64",
        )
    return Clip(samples, sound.sample_rate, request.prompt_text)


async def _stored_clip(context: RequestContext, own: OwnVoice) -> Clip:
    """A clip of this server: a WAV file that was written here."""
    data = await context.service.state.blobs.find(own.clip_blob)
    if data is None:
        raise UNKNOWN_VOICE(f"voice `{own.voice.slug}` has been deleted", param="voice")
    with wave.open(io.BytesIO(data)) as file:
        return Clip(file.readframes(file.getnframes()), file.getframerate(), own.transcript)


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
        await service.state.ledger.require_funds(caller)
        # Before it waits for a slot: nobody else waits through a cold start.
        await engine.ready(model.serving.wait_s, timings=call.timings)
    try:
        async with slots.of("" if caller is None else call.owner):
            if stored := await service.state.blobs.find(name):
                return stored
            if caller is None and not engine.free():
                raise SAMPLE_UNAVAILABLE()
            job = SpeechJob(service.catalog.sentences[language], language, slug, format="mp3", owner=call.owner)
            speech = await engine.call(SpeechEngine.speak_whole, job, context=call)
            await service.state.blobs.put(name, speech.data)
    except QueueFull:
        raise SAMPLE_UNAVAILABLE() from None
    return speech.data
