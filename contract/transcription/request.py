"""POST /audio/transcriptions: what a request may say, and what each model makes of it.

The fields are the same in a form and in JSON. A form has only texts, and may repeat a field or add `[]` to its name:

    fields(pairs)                        a form's pairs -> what TranscriptionRequest reads
    choose(request, models)              the model that listens
    plan(request, model)                 what is asked of it; raises whatever the model refuses
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, SkipValidation

from contract.base import Lenient
from contract.catalog import TranscriptionModel
from contract.errors import INVALID_REQUEST, LANGUAGE_NOT_SUPPORTED
from contract.limits import CONTEXT_TERMS, FORMAT_TEXT_S, GRANULARITIES_CHARS, RECORDING_S, TRANSCRIPTION_PROMPT_CHARS
from contract.transcription.engine import TranscriptionJob, named_language

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


def _end(text: str) -> str:
    """The end of a prompt, as far as a model can read it."""
    return text[-TRANSCRIPTION_PROMPT_CHARS:]


Switch = Annotated[bool, BeforeValidator(_switch, json_schema_input_type=bool)]


class TranscriptionRequest(Lenient):
    """What is asked about a recording. Unknown fields are ignored, and so is an unknown `model`.

    Attributes:
        upload_id: the ticket under which the recording was uploaded; None where the form brings it as `file`.
        language: two letters, also as `de-DE`, or `auto` (`contract.transcription.engine`).
        timestamp_granularities: which times the answer has.
        context_bias: proper nouns and technical terms.
        format_text: adds a structuring pass.
        prompt: spelling and style, of which the end counts; models without such a hint ignore it.
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
    prompt: Annotated[str, AfterValidator(_end)] | None = None
    stream: Switch = False


def fields(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """The fields of a form; one without a text is one that nobody filled in.

    Raises INVALID_REQUEST for one that came twice and may come once.
    """
    form: dict[str, Any] = {}
    for name, text in pairs:
        name = name.removesuffix("[]")
        if not text:
            continue
        if name in LISTS:
            form.setdefault(name, []).append(text)
        elif name in form and name in TranscriptionRequest.model_fields:
            raise INVALID_REQUEST(f"`{name}` was sent twice; send it once", param=name)
        else:
            form[name] = text
    return form


@dataclass(frozen=True, slots=True)
class TranscriptionPlan:
    """A request that its model can answer.

    Attributes:
        language: of the recording, spelt as in `contract.transcription.engine`; None where it is to be detected.
        echo: the same as the answer spells it.
        prompt, terms: hints for the engine.
        words: whether the engine is to time every word.
        max_seconds: of the recording.
    """

    request: TranscriptionRequest
    model: TranscriptionModel
    language: str | None
    echo: str | None
    prompt: str | None
    terms: tuple[str, ...]
    words: bool
    max_seconds: float

    def job(self, audio: bytes | str, owner: str = "") -> TranscriptionJob:
        """What crosses to the engine, for the recording `audio`; see `TranscriptionJob`."""
        language = self.language if self.language in self.model.languages else None
        return TranscriptionJob(audio, language, self.prompt, self.terms, self.words, self.max_seconds, owner)


def choose(request: TranscriptionRequest, models: Sequence[TranscriptionModel]) -> TranscriptionModel | None:
    """The model that `request` names, else the default one; None where neither is among `models`."""
    named = next((model for model in models if model.id == request.model), None)
    return named or next((model for model in models if model.is_default), None)


def plan(request: TranscriptionRequest, model: TranscriptionModel) -> TranscriptionPlan:
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
    if request.context_bias and not model.takes_terms:
        raise INVALID_REQUEST(
            f"what runs `{model.id}` here cannot be told terms; leave `context_bias` out", param="context_bias"
        )
    language = _language(request.language, model)
    return TranscriptionPlan(
        request,
        model,
        language,
        language if model.selects_language or language is None else (request.language or "").strip(),
        request.prompt if model.takes_prompt and request.prompt else None,
        request.context_bias,
        _times_words(request, model),
        FORMAT_TEXT_S if request.format_text else RECORDING_S,
    )


def _language(code: str | None, model: TranscriptionModel) -> str | None:
    """The code as `named_language` spells it. Raises LANGUAGE_NOT_SUPPORTED where the model obeys and lacks it."""
    try:
        language = named_language(code)
    except ValueError as error:
        if not model.selects_language:
            raise INVALID_REQUEST(f"`language` was sent as `{(code or '')[:40]}`: {error}", param="language") from None
        language = ""
    if language is not None and model.selects_language and language not in model.languages:
        raise LANGUAGE_NOT_SUPPORTED(
            f"language `{(code or '')[:40]}` is not one that this model knows; `supported` lists them",
            param="language",
            extra={"supported": sorted(model.languages)},
        )
    return language


def _times_words(request: TranscriptionRequest, model: TranscriptionModel) -> bool:
    """Whether the engine is to time words: where the answer shows them, and the engine can.

    Where it cannot, `segments` are passages. A list of words, which detailed answers have, cannot be made of those.
    """
    is_shown = "word" in request.timestamp_granularities and request.response_format == "verbose_json"
    if is_shown and model.is_detailed and not model.times_words:
        raise INVALID_REQUEST(
            f"what runs `{model.id}` here times no words; ask for `segment`", param="timestamp_granularities"
        )
    return is_shown and model.times_words
