"""Handles of engines of speech, transcription and voice design for researchers; as in `handles.py`."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

from contract.body import validated
from contract.catalog import SpeechModel, TranscriptionModel, VoiceDesignModel
from contract.errors import CLONING_NOT_SUPPORTED, INVALID_REQUEST
from contract.speech.engine import AudioBlock, Clip, SpeechEngine, SpeechJob
from contract.speech.request import SpeechRequest
from contract.speech.routing import choose, job_of
from contract.speech.tags import tags_of
from contract.transcription.engine import TranscriptionEngine, TranscriptUpdate
from contract.transcription.request import TranscriptionPlan, TranscriptionRequest, plan
from contract.transcription.transcript import Transcript
from contract.voice_design.engine import DesignResult, VoiceDesignEngine
from contract.voice_design.order import DesignOrder, SuggestRequest
from contract.voice_design.order import voice_spec as plan_voice
from contract.voice_design.replies import SuggestReply
from contract.voice_design.traits import Gender
from deployments.client.calls import Call, Handle, Stream
from text.descriptions.suggest import suggest
from text.language import detect
from text.speakable import speakable

Speaker = str | DesignResult | Clip | None
"""Slug of a voice, one that was designed (by the engine's own runtime), or a clip to imitate; None for the default."""

Recording = bytes | Path | str
"""A file, as its bytes or its path here; or the address from which the replica reads it: `https:`, or `file:` for a
folder that all machines share."""


class SpeechHandle(Handle[SpeechModel]):
    """A speech engine. `fields` are those of the API: `response_format`, `emotion`, `speed`.

    `language` is a code of two letters, or `auto`.
    """

    __slots__ = ()

    def speak(self, text: str, language: str = "auto", voice: Speaker = None, **fields: Any) -> bytes:
        """An audio file."""
        return self.submit(text, language, voice, **fields).result()

    def submit(self, text: str, language: str = "auto", voice: Speaker = None, **fields: Any) -> Call[bytes]:
        return self._call(SpeechEngine.speak_whole, self._job(text, language, voice, fields)).then(
            lambda block: block.data
        )

    def stream(self, text: str, language: str = "auto", voice: Speaker = None, **fields: Any) -> Stream[AudioBlock]:
        """The file as it is made."""
        return self._stream(SpeechEngine.speak, self._job(text, language, voice, fields))

    def _job(self, text: str, language: str, voice: Speaker, fields: dict[str, Any]) -> SpeechJob:
        if "reference_audio_b64" in fields:
            raise INVALID_REQUEST("pass the reference clip as `voice`, a `Clip`", param="reference_audio_b64")
        slug = voice if isinstance(voice, str) else None
        body = {"input": text, "language": language, "voice": slug, **fields, "provider": self.model.provider}
        request = validated(SpeechRequest, body)
        engines = {engine.provider: engine for engine in self.catalog.speech.values()}
        detected = detect(text, self.catalog.spoken_languages)
        choice = choose(request, self.catalog.voices, engines, detected, datetime.now(UTC).date())
        spoken = speakable(text, choice.language, tags_of(self.model))
        return self._by(voice, job_of(request.model_copy(update={"input": spoken}), choice, engines))

    def _by(self, voice: Speaker, job: SpeechJob) -> SpeechJob:
        """Speaks with a designed voice by its designer's recipe; other engines imitate its clip, if they can."""
        if voice is None or isinstance(voice, str):
            return job
        designing = {model.runtime for model in self.catalog.voice_design.values() if model.serving}
        is_own = isinstance(voice, DesignResult) and self.model.runtime in designing
        if isinstance(voice, DesignResult) and is_own and voice.recipe is not None:
            return replace(job, voice=None, recipe=voice.recipe)
        if not (self.model.has_cloning or is_own):
            raise CLONING_NOT_SUPPORTED(
                f"engine `{self.model.provider}` cannot clone the voice of a clip", param="voice"
            )
        return replace(job, voice=None, clip=voice.clip if isinstance(voice, DesignResult) else voice)


class TranscriptionHandle(Handle[TranscriptionModel]):
    """A transcriber. `fields` are those of the API, e.g. `language="de"`."""

    __slots__ = ()

    def transcribe(self, recording: Recording, **fields: Any) -> Transcript:
        """Transcript: `.text`, `.segments`, `.language`; subtitles by `contract.transcription.transcript.plain`."""
        return self.submit(recording, **fields).result()

    def submit(self, recording: Recording, **fields: Any) -> Call[Transcript]:
        plan = self._plan(fields)

        def whole(parts: list[TranscriptUpdate]) -> Transcript:
            transcript = Transcript(plan)
            for part in parts:
                transcript.add(part)
            return transcript

        return Call(self._parts(plan, recording), whole)

    def stream(self, recording: Recording, **fields: Any) -> Stream[TranscriptUpdate]:
        """Segments as they are transcribed; the first part has none and says how long the recording is."""
        return self._parts(self._plan(fields), recording)

    def _parts(self, plan: TranscriptionPlan, recording: Recording) -> Stream[TranscriptUpdate]:
        return self._stream(
            TranscriptionEngine.transcribe,
            plan.job(recording.read_bytes() if isinstance(recording, Path) else recording),
        )

    def _plan(self, fields: dict[str, Any]) -> TranscriptionPlan:
        request = validated(TranscriptionRequest, fields)
        if request.upload_id is not None:
            raise INVALID_REQUEST(
                "uploads belong to organisations of the API; pass the recording itself", param="upload_id"
            )
        if request.format_text:
            raise INVALID_REQUEST(
                "`format_text` is a pass that only the API makes over a transcript; request it there",
                param="format_text",
            )
        return plan(request, self.model)


class VoiceDesignHandle(Handle[VoiceDesignModel]):
    """A designer of voices."""

    __slots__ = ()

    def design(self, gender: Gender, seed: int | None = None, **fields: Any) -> DesignResult:
        """A voice: `.clip`, `.sample` (MP3), `.f0_hz`, `.in_band`; it is kept nowhere, and `speak` takes it.

        `fields` are those of an order in the API, e.g. `age_years=34` and `target_hz=190`. What they leave open is
        drawn by chance; the same `seed` draws the same.
        """
        return self.submit(gender, seed, **fields).result()

    def submit(self, gender: Gender, seed: int | None = None, **fields: Any) -> Call[DesignResult]:
        order = validated(DesignOrder, {"gender": gender, **fields})
        planned = plan_voice(order, self.catalog.traits, self.model, Random(seed))
        return self._call(
            VoiceDesignEngine.design, planned.job(self.catalog.sentences[planned.language], self.model.max_attempts)
        )

    def suggest(self, text: str) -> SuggestReply:
        """Fields of an order for the voice that `text` describes, in German or English, and why. No engine runs."""
        return suggest(validated(SuggestRequest, {"text": text}).text, self.catalog.traits)
