"""GET /decisions/models: who runs each decision model, where, and what was measured."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from contract import limits
from contract.catalog import DecisionModel
from contract.decisions.engine import Measurement
from contract.operator import Operator


class DecisionModelObject(TypedDict):
    """A decision model. `measurements` is null until a replica has measured its runtime.

    `price_micro_eur` is what a million of each unit costs.
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
    """The decision models of the caller's organisation, and what a request may hold."""

    object: Literal["list"]
    data: list[DecisionModelObject]
    default: str | None
    limits: dict[str, int | list[int]]


def describe(
    model: DecisionModel, measured: Measurement | None, operator: Operator, *, is_default: bool
) -> DecisionModelObject:
    """One entry of the list."""
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


LIMITS: dict[str, int | list[int]] = {
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
"""Shown to clients, so that they need not guess."""
