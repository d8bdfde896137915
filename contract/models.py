"""GET /models and GET /decisions/models: entries of models, with the limits of one request."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal, NotRequired, cast

from typing_extensions import TypedDict

from contract import limits
from contract.catalog import (
    ChatModel,
    DecisionModel,
    EmbeddingModel,
    Model,
    Operator,
    RerankModel,
    SpeechModel,
    TranscriptionModel,
)
from contract.chat.tools import MAX_TOOLS
from contract.decisions.engine import Measurement
from contract.embeddings import MAX_INPUTS
from contract.rerank import MAX_DOCUMENTS
from contract.speech.voices import SpokenBy
from contract.telemetry import EngineState


class ModelLoad(TypedDict):
    """State of the engine now, and the time of a start, from a request at zero replicas.

    Attributes:
        state: state of the engine: cold, starting, ready, busy or failed.
        expected_s: median seconds of a start.
        p90_s: seconds within which nine of ten starts end.
    """

    state: EngineState
    expected_s: float
    p90_s: float


class ModelObject(TypedDict):
    """A model, in the form that OpenAI's and Anthropic's clients read.

    `kind` selects the endpoint. `runtime` is what truly runs here, and `license` its licence. `runtimes` lists runtimes
    by language, if there are several. `price_micro_eur` is the price of a million of each unit. `limits` are bounds of
    one request, each with its unit in its name, and values to choose from.
    """

    id: str
    object: Literal["model"]
    type: Literal["model"]
    created: int
    created_at: str
    owned_by: str
    kind: Literal["chat", "embedding", "rerank", "tts", "stt"]
    runtime: str
    runtimes: NotRequired[list[SpokenBy]]
    tier: NotRequired[str]
    display_name: str
    description: NotRequired[str]
    license: NotRequired[str]
    context_window: NotRequired[int]
    dimensions: NotRequired[int]
    vision: NotRequired[bool]
    price_micro_eur: dict[str, int]
    limits: dict[str, int | float | list[str]]
    load: NotRequired[ModelLoad]


class ModelList(TypedDict):
    """Models that the caller's organisation can use, on one page: the last three fields are Anthropic's."""

    object: Literal["list"]
    data: list[ModelObject]
    has_more: Literal[False]
    first_id: str | None
    last_id: str | None


def listing(data: list[ModelObject]) -> ModelList:
    """Returns all models on one page."""
    first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
    return {"object": "list", "data": data, "has_more": False, "first_id": first, "last_id": last}


def describe(model: Model, load: ModelLoad | None = None) -> ModelObject:
    """Returns the entry of a model that is set up; `load` is the state of its engine, if it is known."""
    public: dict[str, Any] = {
        "id": model.id,
        "object": "model",
        "type": "model",
        "created": model.created,
        "created_at": datetime.fromtimestamp(model.created, UTC).isoformat(),
        "owned_by": model.owned_by,
        "kind": model.kind,
        "display_name": model.display_name or model.id,
        "description": model.description,
        "license": model.runtime_license,
        "runtime": model.runtime,
    }
    if isinstance(model, ChatModel):
        public |= {"tier": model.tier, "context_window": model.context_window, "vision": model.vision}
    if isinstance(model, EmbeddingModel):
        public |= {"dimensions": model.dimensions, "context_window": model.context_window}
    if isinstance(model, SpeechModel):
        public |= {"runtimes": model.runtimes(has_voice=False) or None}
    public |= {"price_micro_eur": model.price, "limits": _limits(model), "load": load}
    return cast(ModelObject, {key: value for key, value in public.items() if value is not None})


def _limits(model: Model) -> dict[str, int | float | list[str]]:
    """Returns the limits of one request. The window, if there is one, is in `context_window` instead."""
    match model:
        case ChatModel():
            return {
                "images": limits.MAX_IMAGES if model.vision else 0,
                "tools": MAX_TOOLS,
                "body_bytes": limits.CHAT_BODY_BYTES,
            }
        case EmbeddingModel():
            return {
                "inputs": MAX_INPUTS,
                "input_tokens": model.context_window,
                "input_types": sorted(model.prompts),
                "body_bytes": limits.JSON_BODY_BYTES,
            }
        case RerankModel():
            return {
                "documents": MAX_DOCUMENTS,
                "pair_tokens": model.context_window,
                "body_bytes": limits.JSON_BODY_BYTES,
            }
        case SpeechModel():
            return {
                "input_characters": model.max_input_chars,
                "reference_clip_s": limits.SPEECH_CLIP_S if model.has_cloning else 0,
                "languages": list(model.languages),
                "response_formats": list(model.formats),
                "body_bytes": limits.SPEECH_BODY_BYTES,
            }
        case TranscriptionModel():
            return {
                "file_bytes": limits.RECORDING_BODY_BYTES,
                "upload_bytes": limits.UPLOAD_BYTES,
                "audio_s": limits.RECORDING_S,
                "languages": sorted(model.languages),
                "response_formats": list(model.formats),
                "timestamp_granularities": ["segment", "word"] if model.times_words else ["segment"],
                "context_terms": limits.CONTEXT_TERMS if model.takes_terms else 0,
            }
        case _:
            return {}


class DecisionModelObject(TypedDict):
    """A decision model. `measurements` is null until a replica has measured its runtime.

    `price_micro_eur` is the price of a million of each unit.
    """

    id: str
    object: Literal["decision_model"]
    created: int
    display_name: str | None
    description: str | None
    default: bool
    runtime: str
    operator: str
    country: str
    via: str
    images: bool
    context_window: int
    price_micro_eur: dict[str, int]
    status: Literal["measured", "not_measured"]
    measurements: dict[str, float | str] | None


class DecisionModelList(TypedDict):
    """Decision models of the caller's organisation, and the limits of a request."""

    object: Literal["list"]
    data: list[DecisionModelObject]
    default: str | None
    limits: dict[str, int | list[int]]


def describe_decision_model(
    model: DecisionModel, measured: Measurement | None, operator: Operator, *, is_default: bool
) -> DecisionModelObject:
    """Returns the entry of a decision model."""
    return {
        "id": model.id,
        "object": "decision_model",
        "created": model.created,
        "display_name": model.display_name,
        "description": model.description,
        "default": is_default,
        "runtime": model.runtime,
        "operator": operator.name,
        "country": operator.country,
        "via": model.runtime_via,
        "images": model.reads_images,
        "context_window": model.context_window,
        "price_micro_eur": model.price,
        "status": "measured" if measured else "not_measured",
        "measurements": measured.model_dump() if measured else None,
    }


DECISION_LIMITS: dict[str, int | list[int]] = {
    "questions": limits.DECISION_QUESTIONS,
    "state_characters": limits.DECISION_STATE_CHARS,
    "question_characters": limits.DECISION_QUESTION_CHARS,
    "description_characters": limits.DECISION_DESCRIPTION_CHARS,
    "options": list(limits.DECISION_OPTIONS),
    "levels": list(limits.DECISION_LEVELS),
    "body_bytes": limits.DECISION_BODY_BYTES,
    "images": limits.DECISION_IMAGES,
    "image_bytes": limits.DECISION_IMAGE_BYTES,
}
