"""Stanzas of text-to-speech engines, and of designers of their voices."""

from __future__ import annotations

from datetime import date
from typing import ClassVar, Literal

from pydantic import PositiveInt

from contract.catalog.base import Model, SpeechRuntime
from contract.speech.voices import SpokenBy

AudioFormat = Literal["wav", "flac", "ogg", "mp3", "opus", "aac"]
"""Value of `response_format`. No engine answers with `ogg`: another format replaces it everywhere."""


class SpeechModel(Model):
    """A text-to-speech engine with its capabilities: no rule depends on its name (docs/api.md#post-audiospeech).

    Attributes:
        provider: name of the engine on the wire.
        languages: ISO 639-1 codes.
        selects_language: whether the engine refuses other languages; if not, it follows the text.
        max_input_chars: most code points of `input`.
        formats: formats of the answer; the first is used if a request names none, or another one.
        sample_rate: samples per second of the sound, which is mono.
        tags: tags inside the text that the engine acts on, e.g. `<breath>`.
        spans: names of tags that enclose text, e.g. `laughter` for `<laughter>...</laughter>`.
        has_style, has_speed, has_cloning: whether the engine uses `emotion`, `speed` and a reference clip.
        buffers_output: whether sound is sent only when it is complete.
        watermark: whether the sound carries an inaudible watermark.
        default_voice: slug of the voice if none is requested; None for the engine's own.
        system_voices: slug of the voice for `default-de` and `default-en`, where it is not `default_voice`.
        default_since: first day as the default engine. Of all days that are not in the future, the newest decides.
        takeover_order: place among the engines that replace the default one in languages that it lacks: the first
            that has the language speaks, else the last.
        speaks_for_clips: whether the engine speaks if a request brings a clip and names no engine.
        language_fault: row of the error table that refuses a language it lacks.
        voice_fault: row of the error table that refuses a voice of another engine.
    """

    kind = "tts"
    noun = "speech"

    provider: str
    languages: tuple[str, ...]
    selects_language: bool = False
    max_input_chars: PositiveInt
    formats: tuple[AudioFormat, ...] = ("wav",)
    sample_rate: PositiveInt = 24_000
    tags: tuple[str, ...] = ()
    spans: tuple[str, ...] = ()
    has_style: bool = False
    has_speed: bool = False
    has_cloning: bool = False
    buffers_output: bool = False
    watermark: bool = False
    default_voice: str | None = None
    system_voices: dict[str, str] = {}
    default_since: date | None = None
    takeover_order: int | None = None
    speaks_for_clips: bool = False
    language_fault: Literal["LANGUAGE_NOT_SUPPORTED", "LANGUAGE_UNPROCESSABLE"] = "LANGUAGE_NOT_SUPPORTED"
    voice_fault: Literal["VOICE_PROVIDER_MISMATCH", "UNKNOWN_VOICE"] = "VOICE_PROVIDER_MISMATCH"

    def has_voice(self, slug: str) -> bool:
        """Returns True if the engine has a fixed voice here: from its stanza, or from its weights."""
        listed = self.serving.options.get("voices") if self.serving else ()
        return listed is None or slug in listed

    def runtimes(self, *, has_voice: bool) -> list[SpokenBy]:
        """Returns each runtime with its languages; an empty list if there is only one runtime, or none is deployed."""
        if self.serving is None:
            return []
        spoken: dict[SpeechRuntime, list[str]] = {}
        for code in self.languages:
            spoken.setdefault(self.speaker_of(code, has_voice=has_voice), []).append(code)
        listed: list[SpokenBy] = [
            {"runtime": by.runtime, "license": by.license, "description": by.description, "languages": codes}
            for by, codes in spoken.items()
        ]
        return listed if len(listed) > 1 else []


class VoiceDesignModel(Model):
    """Designer of voices from descriptions (docs/voices.md). `/models` does not name it: design-options does.

    Attributes:
        provider: speech engine that speaks adopted voices.
        languages: ISO 639-1 codes in which a voice may be designed: its sample sentence is in one of them.
        max_attempts: most sentences that are spoken and measured for one draft.
        expected_s: seconds of synthesis that are reserved from a budget for one draft.
    """

    kind = "voice_design"
    noun = "voice_design"
    is_listed = False

    provider: str
    languages: tuple[str, ...]
    max_attempts: ClassVar[int] = 5
    expected_s: ClassVar[float] = 60
