"""POST /audio/transcriptions: what a request may say, and what each model makes of it. Spec 4 and 8.

The fields are the same in a form and in JSON. A form has only texts, and may repeat a field or add `[]` to its name:

    fields(pairs)                        a form's pairs -> what TranscriptionRequest reads
    choose(request, models)              the model that listens
    plan(request, model)                 what is asked of it; raises whatever the model refuses
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SkipValidation

from contract.base import Lenient
from contract.catalog import TranscriptionModel
from contract.errors import INVALID_REQUEST
from contract.limits import CONTEXT_TERMS, FORMAT_TEXT_S, GRANULARITIES_CHARS, RECORDING_S, TRANSCRIPTION_PROMPT_CHARS
from contract.transcription.engine import TranscriptionJob
from contract.transcription.languages import spoken_language

TranscriptFormat = Literal["json", "text", "verbose_json", "srt", "vtt"]

GRANULARITIES = ("segment", "word")

TRUE, FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off", "")

LISTS = ("context_bias", "timestamp_granularities")
"""Fields that a form may repeat."""


def _switch(value: Any) -> Any:
    """A boolean; a form spells it."""
    word = value.strip().lower() if isinstance(value, str) else None
    if word is not None and word in (*TRUE, *FALSE):
        return word in TRUE
    return value


def _granularities(value: Any) -> tuple[str, ...]:
    """Each once, in the order of GRANULARITIES. `segment,word` in one text is two."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, (list, tuple)) or not all(isinstance(text, str) for text in texts):
        raise ValueError("`segment` or `word` is expected")
    if len(named := ",".join(texts)) > GRANULARITIES_CHARS:
        raise ValueError(f"{len(named)} characters were sent; `segment` and `word` take fewer")
    parts = {part.strip() for part in named.split(",")} - {""}
    if unknown := sorted(parts - set(GRANULARITIES)):
        raise ValueError(f"`{unknown[0][:40]}` is none of `segment` and `word`")
    return tuple(name for name in GRANULARITIES if name in parts)


def _terms(value: Any) -> tuple[str, ...]:
    """Terms without white space; those that have some are discarded."""
    terms = [value] if isinstance(value, str) else value
    if isinstance(terms, (list, tuple)) and len(terms) > CONTEXT_TERMS:
        raise ValueError(f"{len(terms)} terms were sent; at most {CONTEXT_TERMS} are allowed")
    if not isinstance(terms, (list, tuple)) or not all(isinstance(term, str) for term in terms):
        raise ValueError("a term, or an array of terms, is expected")
    return tuple(term for term in terms if term and not any(map(str.isspace, term)))


Switch = Annotated[bool, BeforeValidator(_switch, json_schema_input_type=bool)]


class TranscriptionRequest(Lenient):
    """What is asked about a recording. Unknown fields are ignored, and so is an unknown `model` (spec 1 and 4).

    Attributes:
        upload_id: the ticket under which the recording was uploaded; None where the form brings it as `file`.
        language: two letters, also as `de-DE`, or `auto` (`contract.transcription.languages`).
        timestamp_granularities: which times the answer has.
        context_bias: proper nouns and technical terms.
        format_text: adds a structuring pass.
        prompt: spelling and style; models without such a hint ignore it.
        stream: answers with events as the recording is heard.
    """

    upload_id: str | None = None
    model: str | None = None
    language: str | None = None
    response_format: TranscriptFormat = "json"
    timestamp_granularities: Annotated[
        SkipValidation[tuple[str, ...]], BeforeValidator(_granularities, json_schema_input_type=str | list[str])
    ] = ()
    context_bias: Annotated[
        SkipValidation[tuple[str, ...]], BeforeValidator(_terms, json_schema_input_type=str | list[str])
    ] = ()
    format_text: Switch = False
    prompt: str | None = Field(None, max_length=TRANSCRIPTION_PROMPT_CHARS)
    stream: Switch = False


def fields(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """The fields of a form; one without a text is one that nobody filled in.

    Raises INVALID_REQUEST for one that came twice and may come once.
    """
    found: dict[str, Any] = {}
    for name, text in pairs:
        name = name.removesuffix("[]")
        if not text:
            continue
        if name in LISTS:
            found.setdefault(name, []).append(text)
        elif name in found and name in TranscriptionRequest.model_fields:
            raise INVALID_REQUEST(f"`{name}` was sent twice; send it once", param=name)
        else:
            found[name] = text
    return found


@dataclass(frozen=True, slots=True)
class Plan:
    """A request that its model can answer.

    Attributes:
        language: that the engine is told, None where it is to find out.
        prompt, terms: hints for the engine.
        words: whether the engine is to time every word.
        max_seconds: of the recording.
    """

    request: TranscriptionRequest
    model: TranscriptionModel
    language: str | None
    prompt: str | None
    terms: tuple[str, ...]
    words: bool
    max_seconds: float

    def job(self, audio: bytes | str, owner: str = "") -> TranscriptionJob:
        """What crosses to the engine, for the recording `audio`; see `TranscriptionJob`."""
        return TranscriptionJob(audio, self.language, self.prompt, self.terms, self.words, self.max_seconds, owner)


def choose(request: TranscriptionRequest, models: Sequence[TranscriptionModel]) -> TranscriptionModel | None:
    """The model that `request` names, else the default one; None where neither is among `models`."""
    named = next((model for model in models if model.id == request.model), None)
    return named or next((model for model in models if model.is_default), None)


def plan(request: TranscriptionRequest, model: TranscriptionModel) -> Plan:
    """What `model` is asked. Raises INVALID_REQUEST and LANGUAGE_NOT_SUPPORTED for what it does not do."""
    format, granularities = request.response_format, request.timestamp_granularities
    if format not in model.formats:
        raise INVALID_REQUEST(
            f"`response_format` `{format}` is not offered by `{model.id}`; allowed are {', '.join(model.formats)}",
            param="response_format",
        )
    if request.stream and format not in ("json", "text", "verbose_json"):
        raise INVALID_REQUEST(
            f"`{format}` cannot be streamed; ask for `json`, `text` or `verbose_json`", param="response_format"
        )
    if len(granularities) > 1 and not model.is_detailed:
        raise INVALID_REQUEST(
            f"`timestamp_granularities` takes exactly one of `segment` and `word` with `{model.id}`",
            param="timestamp_granularities",
        )
    if request.format_text and not model.formats_text:
        raise INVALID_REQUEST(f"`format_text` is not possible with `{model.id}`", param="format_text")
    return Plan(
        request,
        model,
        spoken_language(request.language, model.languages),
        request.prompt if model.takes_prompt and request.prompt else None,
        request.context_bias,
        "word" in granularities,
        FORMAT_TEXT_S if request.format_text else RECORDING_S,
    )
