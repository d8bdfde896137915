"""Shapes of the replies, for the OpenAPI document. Spec 2; where it is silent, the third party's schema.

Routes answer with plain dictionaries, which are quicker; tests hold them against these models.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel


class ErrorObject(BaseModel):
    """What went wrong. Decide by `type` and `code`; `message` is for people."""

    message: str
    type: str
    param: str | None
    code: str


class ErrorReply(BaseModel):
    """Every error has this body."""

    error: ErrorObject


class ModelReply(BaseModel):
    """A model; `kind` says which endpoint takes it, `runtime` what truly runs here."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    kind: Literal["chat", "embedding", "rerank", "tts", "stt"]
    runtime: str
    tier: str | None = None
    display_name: str | None = None
    description: str | None = None
    license: str | None = None
    context_window: int | None = None
    dimensions: int | None = None
    vision: bool | None = None


class ModelListReply(BaseModel):
    """The models that the caller's organisation can use."""

    object: Literal["list"]
    data: list[ModelReply]


class GrantedScope(BaseModel):
    """A scope, and whether the key has it."""

    scope: str
    granted: bool


class OrganisationReply(BaseModel):
    """The caller's organisation; `models` are those enabled for it, null for all."""

    name: str
    plan: str
    entitlements: list[str]
    models: list[str] | None
    decision_model: str | None


class SpendReply(BaseModel):
    """Money in micro-EUR: the limit (null for none), what was billed, what is held for requests under way."""

    limit_micro_eur: int | None
    spent_micro_eur: int
    held_micro_eur: int


class MeReply(BaseModel):
    """What a key may do."""

    object: Literal["me"]
    key_id: str
    scopes: list[GrantedScope]
    limits: dict[str, int]
    organisation: OrganisationReply
    user: str | None
    spend: dict[str, SpendReply | None]


class Usage(BaseModel):
    """Tokens of a request."""

    prompt_tokens: int
    total_tokens: int
    completion_tokens: int | None = None


class ChatCompletionReply(BaseModel):
    """A finished chat completion, in the third party's schema."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[dict[str, Any]]
    usage: Usage


class EmbeddingReply(BaseModel):
    """A vector: numbers, or base64 of little-endian float32."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingsReply(BaseModel):
    """Vectors in the order of the inputs."""

    object: Literal["list"]
    data: list[EmbeddingReply]
    model: str
    usage: Usage


class RerankResult(BaseModel):
    """A document's place in the request, and its relevance; `document` when it was asked for."""

    index: int
    relevance_score: float
    document: dict[str, str] | None = None


class RerankReply(BaseModel):
    """Results, most relevant first."""

    id: str
    object: Literal["rerank"]
    model: str
    results: list[RerankResult]
    usage: Usage
    meta: dict[str, Any]


class VoiceReply(BaseModel):
    """A voice; `samples` by language for the platform's, a signed `sample_url` for the organisation's own."""

    object: Literal["voice"]
    slug: str
    label: str
    origin: Literal["designed", "preset", "cloned"]
    gender: Literal["m", "f"]
    age_group: str
    description: str | None = None
    primary_language: str
    languages: list[str]
    samples: dict[str, str] | None = None
    scope: Literal["platform", "org"]
    sample_url: str | None
    provider: str
    model: str
    runtime: str | None
    selectable: bool
    available: bool
    status: str | None = None
    status_note: str | None = None


class VoiceAccess(BaseModel):
    """Whether the organisation may choose catalogue voices, and by what."""

    selectable: bool
    via: Literal["tier", "entitlement"]
    tier: str
    hint: str | None


class VoiceListReply(BaseModel):
    """Every voice that the organisation can see; `languages` are those of the catalogue voices' engine."""

    object: Literal["list"]
    data: list[VoiceReply]
    languages: list[str]
    languages_by_provider: dict[str, list[str]]
    access: VoiceAccess


class HealthReply(BaseModel):
    """The ingress serves; running replicas by engine."""

    status: Literal["ok"]
    replicas: dict[str, int]
