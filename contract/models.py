"""GET /models: how a model is listed. Spec 2 (Model)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Literal, NotRequired, cast

from typing_extensions import TypedDict

from contract.catalog import ChatModel, EmbeddingModel, Model, SpeechModel
from contract.speech.voices import SpokenBy


class ModelObject(TypedDict):
    """A model, as OpenAI's and Anthropic's clients read it.

    `kind` says which endpoint takes it, `runtime` what truly runs here, `license` that of what runs. `runtimes` says it
    by language, where not all are spoken by the same.
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


class ModelList(TypedDict):
    """The models that the caller's organisation can use, on one page: the last three fields are Anthropic's."""

    object: Literal["list"]
    data: list[ModelObject]
    has_more: Literal[False]
    first_id: str | None
    last_id: str | None


def listing(models: Iterable[Model]) -> ModelList:
    """All of `models` on one page."""
    data = [describe(model) for model in models]
    first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
    return {"object": "list", "data": data, "has_more": False, "first_id": first, "last_id": last}


def describe(model: Model) -> ModelObject:
    """One entry of the list, of a model that is set up."""
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
        public |= {"runtimes": model.runtimes or None}
    return cast(ModelObject, {key: value for key, value in public.items() if value is not None})
