"""Requests of POST /audio/transcriptions, and their plan for one model.

The fields are the same in a form and in JSON. A form has only texts, and may repeat a field or add `[]` to its name:

    fields(pairs)                        pairs of a form -> fields of TranscriptionRequest
    choose(request, models)              the model that transcribes
    plan(request, model)                 the request as this model can serve it; raises what the model refuses
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
    """Returns a boolean for its spelling in a form, and anything else unchanged."""
    word = value.strip().lower() if isinstance(value, str) else None
    return word in TRUE if word in (*TRUE, *FALSE) else value


def _granularities(value: Any) -> tuple[str, ...]:
    """Returns each granularity once, in the order of GRANULARITIES. The text `segment,word` is two."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, (list, tuple)) or not all(isinstance(text, str) for text in texts):
        raise ValueError("it must be `segment` or `word`")
    if len(named := ",".join(texts)) > GRANULARITIES_CHARS:
        raise ValueError(f"{len(named)} characters were sent; it must be `segment` or `word`")
    parts = {part.strip() for part in named.split(",")} - {""}
    if unknown := sorted(parts - set(GRANULARITIES)):
        raise ValueError(f"`{unknown[0][:40]}` is neither `segment` nor `word`")
    return tuple(name for name in GRANULARITIES if name in parts)


def _terms(value: Any) -> tuple[str, ...]:
    """Returns terms without white space; terms with white space are discarded."""
    terms = [value] if isinstance(value, str) else value
    if isinstance(terms, (list, tuple)) and len(terms) > CONTEXT_TERMS:
        raise ValueError(f"{len(terms)} terms were sent; at most {CONTEXT_TERMS} are allowed")
    if not isinstance(terms, (list, tuple)) or not all(isinstance(term, str) for term in terms):
        raise ValueError("it must be a term or an array of terms")
    return tuple(term for term in terms if term and not any(map(str.isspace, term)))


Prompt = Annotated[str, AfterValidator(lambda text: text[-TRANSCRIPTION_PROMPT_CHARS:])]
Switch = Annotated[bool, BeforeValidator(_switch, json_schema_input_type=bool)]


class TranscriptionRequest(Lenient):
    """Request for a transcription. Unknown fields are ignored, and so is an unknown `model`.

    Attributes:
        upload_id: ticket under which the recording was uploaded; None if the form has it as `file`.
        language: two letters, also as `de-DE`, or `auto` (`contract.transcription.engine`).
        timestamp_granularities: kinds of times in the answer.
        context_bias: proper nouns and technical terms.
        format_text: whether a structuring pass is added.
        prompt: hint at spelling and style, of which the end is used; models without such a hint ignore it.
        stream: whether the answer is a stream of events during the transcription.
    """

    _keeps_empty = frozenset[str]()

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
    prompt: Prompt | None = None
    stream: Switch = False


def fields(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Returns the fields of a form; a field without text counts as not filled in.

    Raises INVALID_REQUEST for a repeated field that may appear only once.
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
    """A request that its model can serve.

    Attributes:
        language: language of the recording, spelt as in `contract.transcription.engine`; None to detect it.
        echo: spelling of that language in the answer.
        prompt, terms: hints for the engine.
        words: whether the engine times every word.
        max_seconds: longest recording.
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
        """Returns the job for the recording `audio`; see `TranscriptionJob`."""
        language = self.language if self.language in self.model.languages else None
        return TranscriptionJob(audio, language, self.prompt, self.terms, self.words, self.max_seconds, owner)


def choose(request: TranscriptionRequest, models: Sequence[TranscriptionModel]) -> TranscriptionModel | None:
    """Returns the model that `request` names, else the default; None if neither is among `models`."""
    named = next((model for model in models if model.id == request.model), None)
    return named or next((model for model in models if model.is_default), None)


def plan(request: TranscriptionRequest, model: TranscriptionModel) -> TranscriptionPlan:
    """Returns the plan of `request` for `model`. Raises INVALID_REQUEST and LANGUAGE_NOT_SUPPORTED."""
    format, granularities = request.response_format, request.timestamp_granularities
    if format not in model.formats:
        raise INVALID_REQUEST(
            f"`response_format` is `{format}`; `{model.id}` supports {', '.join(model.formats)}",
            param="response_format",
        )
    if request.stream and format not in ("json", "text", "verbose_json"):
        raise INVALID_REQUEST(
            f"`{format}` cannot be streamed; use `json`, `text` or `verbose_json`", param="response_format"
        )
    if len(granularities) > 1 and not model.is_detailed:
        raise INVALID_REQUEST(
            f"`timestamp_granularities` must be exactly one of `segment` and `word` with `{model.id}`",
            param="timestamp_granularities",
        )
    if request.format_text and not model.formats_text:
        raise INVALID_REQUEST(f"`{model.id}` does not support `format_text`; leave it out", param="format_text")
    if request.context_bias and not model.takes_terms:
        raise INVALID_REQUEST(
            f"the runtime of `{model.id}` on this server does not support `context_bias`; leave it out",
            param="context_bias",
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
    """Returns the code as `named_language` spells it. Raises LANGUAGE_NOT_SUPPORTED if the model refuses it."""
    try:
        language = named_language(code)
    except ValueError as error:
        if not model.selects_language:
            raise INVALID_REQUEST(f"`language` is `{(code or '')[:40]}`: {error}", param="language") from None
        language = ""
    if language is not None and model.selects_language and language not in model.languages:
        raise LANGUAGE_NOT_SUPPORTED(
            f"this model does not know the language `{(code or '')[:40]}`; `supported` lists those it knows",
            param="language",
            extra={"supported": sorted(model.languages)},
        )
    return language


def _times_words(request: TranscriptionRequest, model: TranscriptionModel) -> bool:
    """Returns True if the engine times words: the answer shows them, and the engine can time them.

    Otherwise `segments` are passages. Detailed answers need a list of words, so they are refused if it cannot.
    """
    is_shown = "word" in request.timestamp_granularities and request.response_format == "verbose_json"
    if is_shown and model.is_detailed and not model.times_words:
        raise INVALID_REQUEST(
            f"the runtime of `{model.id}` on this server does not time words; use `segment`",
            param="timestamp_granularities",
        )
    return is_shown and model.times_words
