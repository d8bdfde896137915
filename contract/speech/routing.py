"""Choice of the engine, voice and language of a speech request.

    provider, else a known model, else the engine of the voice (or of a clip), else the default engine by date
        - other engines replace the default one in languages that it lacks
        - voices and clips must fit the engine that was chosen

The rule is a pure function of the catalogue: the policy of each engine is in its stanza
(`contract.catalog.SpeechModel`), and no engine is named here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from textwrap import shorten

from contract.catalog import AudioFormat, SpeechModel
from contract.errors import CLONING_NOT_SUPPORTED, FAULTS, INVALID_REQUEST, TEXT_TOO_LONG, UNKNOWN_VOICE
from contract.limits import SPEECH_INPUT_CHARS, SPEECH_SPEED, SPEECH_STYLE_CHARS, SPEECH_STYLE_READ_CHARS
from contract.speech.engine import SpeechJob
from contract.speech.request import SpeechRequest
from contract.speech.tags import prepared
from contract.speech.voices import SYSTEM_VOICES, Voice

FALLBACK_LANGUAGE = "de"

DEFAULT = "default"
"""`X-Voice` where no voice was requested."""


@dataclass(frozen=True, slots=True)
class SpeechRoute:
    """Chosen engine, voice, language and format.

    Attributes:
        voice: slug; None for the engine's default voice, and for a clip.
        spoken_as: value of `X-Voice`.
        language: language that the engine speaks; the detected one for engines that follow the text.
    """

    model: SpeechModel
    voice: str | None
    spoken_as: str
    language: str
    format: AudioFormat


def choose(
    request: SpeechRequest, voices: Mapping[str, Voice], engines: Mapping[str, SpeechModel], detected: str, today: date
) -> SpeechRoute:
    """Returns engine, voice and language of `request`, from an organisation that can see `voices`, by slug.

    `engines` are all engines of the catalogue, by provider. `detected` is the detected language of the text, ISO 639-1,
    and `today` decides the default engine.

    Raises UNKNOWN_VOICE, VOICE_PROVIDER_MISMATCH, CLONING_NOT_SUPPORTED, LANGUAGE_NOT_SUPPORTED,
    LANGUAGE_UNPROCESSABLE, TEXT_TOO_LONG or INVALID_REQUEST.
    """
    _check_provider(request, engines)
    voice = _voice(request, voices)
    language = _language(request, detected)
    model = _requested(request, voice, engines) or _default(language, engines, today)
    _check_voice(voice, model)
    if request.reference_audio_b64 and not model.has_cloning:
        raise CLONING_NOT_SUPPORTED(
            f"engine `{model.provider}` cannot clone a voice; use `{_clip_engine(engines).provider}`",
            param="reference_audio_b64",
        )
    _check_limits(request, model)
    if model.selects_language:
        _check_language(language, model)
    else:
        language = detected
    slug, spoken_as = _speaker(request, model)
    format = request.response_format
    return SpeechRoute(model, slug, spoken_as, language, format if format in model.formats else model.formats[0])


def job_of(request: SpeechRequest, choice: SpeechRoute, engines: Mapping[str, SpeechModel]) -> SpeechJob:
    """Returns the job for the chosen engine, without clip or recipe. Raises INVALID_REQUEST for unspeakable text."""
    model = choice.model
    return SpeechJob(
        prepared(request.input, model, engines.values()),
        choice.language,
        choice.voice,
        # The part of the style that the engine reads, up to the end of a word.
        style=(shorten(request.style, SPEECH_STYLE_READ_CHARS, placeholder="") or None) if model.has_style else None,
        speed=request.speed if model.has_speed and request.speed is not None else 1.0,
        format=choice.format,
    )


def default_engine(engines: Mapping[str, SpeechModel], today: date) -> SpeechModel:
    """Returns the engine for requests that select none, preferably one that is set up.

    The loader refuses a catalogue without a default engine today.
    """
    begun = [model for model in engines.values() if model.default_since and model.default_since <= today]
    return max([model for model in begun if model.serving] or begun, key=lambda model: model.default_since or date.min)


def without_region(code: str) -> str:
    """Returns a language code in the form of the catalogue: `de-DE` becomes `de`."""
    return code.strip().lower().replace("_", "-").partition("-")[0]


def _clip_engine(engines: Mapping[str, SpeechModel]) -> SpeechModel:
    return next(model for model in engines.values() if model.speaks_for_clips)


def _check_provider(request: SpeechRequest, engines: Mapping[str, SpeechModel]) -> None:
    if request.provider is not None and request.provider not in engines:
        raise INVALID_REQUEST(
            f"there is no engine `{request.provider[:40]}`; `provider` must be one of {', '.join(engines)}",
            param="provider",
        )


def _voice(request: SpeechRequest, voices: Mapping[str, Voice]) -> Voice | None:
    if request.voice is None or request.voice in SYSTEM_VOICES:
        return None
    if request.voice not in voices:
        raise UNKNOWN_VOICE(
            f"there is no voice `{request.voice[:100]}`; GET /audio/voices lists all voices, "
            f"and `default-de` and `default-en` always exist",
            param="voice",
        )
    return voices[request.voice]


def _language(request: SpeechRequest, detected: str) -> str:
    if request.language is None:
        return SYSTEM_VOICES.get(request.voice or "", FALLBACK_LANGUAGE)
    language = without_region(request.language)
    return detected if language == "auto" else language


def _requested(request: SpeechRequest, voice: Voice | None, engines: Mapping[str, SpeechModel]) -> SpeechModel | None:
    """Returns the engine that the request selects, or None for the default."""
    if request.provider:
        return engines[request.provider]
    for model in engines.values():
        if model.id == request.model:
            return model
    if voice:
        return engines[voice.provider]
    return _clip_engine(engines) if request.reference_audio_b64 else None


def _default(language: str, engines: Mapping[str, SpeechModel], today: date) -> SpeechModel:
    model = default_engine(engines, today)
    if language in model.languages:
        return model
    places = {model.takeover_order: model for model in engines.values() if model.takeover_order is not None}
    takers = [places[place] for place in sorted(places)]
    return next((taker for taker in takers if language in taker.languages), takers[-1])


def _check_voice(voice: Voice | None, model: SpeechModel) -> None:
    if voice and voice.provider != model.provider:
        # This error has two codes (docs/api.md#errors).
        raise FAULTS[model.voice_fault](
            f"voice `{voice.slug}` belongs to engine `{voice.provider}`, but `{model.provider}` was requested",
            param="voice",
        )


def _check_limits(request: SpeechRequest, model: SpeechModel) -> None:
    if len(request.input) > model.max_input_chars:
        # Engines that accept less text than the others have a code of their own.
        fault = TEXT_TOO_LONG if model.max_input_chars < SPEECH_INPUT_CHARS else INVALID_REQUEST
        raise fault(
            f"`input` has {len(request.input)} characters; engine `{model.provider}` accepts at most "
            f"{model.max_input_chars}",
            param="input",
        )
    low, high = SPEECH_SPEED
    if model.has_speed and request.speed is not None and not low <= request.speed <= high:
        raise INVALID_REQUEST(f"`speed` is {request.speed:g}; it must be {low:g} to {high:g}", param="speed")
    if model.has_style and len(request.style) > SPEECH_STYLE_CHARS:
        raise INVALID_REQUEST(
            f"the style (`emotion`, `instruction` or `instructions`) has {len(request.style)} characters; "
            f"at most {SPEECH_STYLE_CHARS} are allowed",
            param="emotion",
        )


def _check_language(language: str, model: SpeechModel) -> None:
    if language not in model.languages:
        # This error has two statuses (docs/api.md#errors).
        raise FAULTS[model.language_fault](
            f"engine `{model.provider}` does not speak `{language[:20]}`; it speaks {', '.join(model.languages)}",
            param="language",
            extra={"supported": list(model.languages)},
        )


def _speaker(request: SpeechRequest, model: SpeechModel) -> tuple[str | None, str]:
    """Returns the slug for the engine, and the value of `X-Voice`."""
    if request.reference_audio_b64:
        return None, DEFAULT
    if request.voice in SYSTEM_VOICES:
        slug = model.system_voices.get(request.voice, model.default_voice)
        return slug, slug or DEFAULT
    return (request.voice, request.voice) if request.voice else (model.default_voice, DEFAULT)
