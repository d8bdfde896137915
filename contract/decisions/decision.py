"""A decision between the wires: what was asked and what came of it, in no wire's shape.

    a body -> DecisionWire.decision() -> Decision -> the flow -> DecisionResult -> DecisionWire.render() -> a reply

The wires are `native` (POST /decisions), `openai` (POST /decisions with `input`) and `systemone` (POST /systemone).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Protocol

from pydantic import BeforeValidator, TypeAdapter, ValidationError

from contract.body import explain
from contract.catalog import DecisionModel, Operator
from contract.decisions.answers import Answer
from contract.decisions.engine import Readings
from contract.decisions.questions import Policy, Preset, Question, Questions
from contract.errors import INVALID_REQUEST, REQUEST_TOO_LARGE
from contract.images import decoded_bytes
from contract.limits import DECISION_BODY_BYTES, DECISION_IMAGE_BYTES, DECISION_IMAGES, DECISION_STATE_CHARS

MAX_BODY_BYTES = DECISION_BODY_BYTES + DECISION_IMAGES * -(-DECISION_IMAGE_BYTES // 3) * 4
"""Bytes of a body with its images: nothing longer can be valid."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What is asked.

    Attributes:
        state: what is judged, as the model reads it.
        questions: by name, in source order; empty where a preset is named.
        preset: id of a pack of questions.
        model: id; None for the default of the organisation or the service.
        images: `data:` addresses, checked.
        order: `both` reads each choice a second time with its options reversed.
        request_id: the client's own; comes back.
    """

    state: str
    questions: Mapping[str, Question]
    preset: str | None = None
    model: str | None = None
    images: tuple[str, ...] = ()
    policy: Policy = field(default_factory=Policy)
    order: Literal["source", "both"] = "source"
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class DecisionResult:
    """What came of it.

    Attributes:
        id: `dec_...`.
        created: Unix time.
        operator: of the service that ran the model.
        preset: the pack whose questions were asked.
        readings: as the engine gave them, before both orders were folded into one.
        total_s: since the request came.
    """

    id: str
    created: int
    model: DecisionModel
    operator: Operator
    preset: Preset | None
    questions: Mapping[str, Question]
    answers: dict[str, Answer]
    readings: Readings
    total_s: float


class DecisionWire(Protocol):
    """A validated body of some API that asks for decisions."""

    def decision(self) -> Decision:
        """What it asks."""
        ...

    def render(self, result: DecisionResult) -> Any:
        """The reply in the shape of the same API: JSON values."""
        ...


def check_state(text: str) -> None:
    """Raises ValueError where there is nothing to judge, and REQUEST_TOO_LARGE where there is too much."""
    if not text.strip():
        raise ValueError("the state is empty; send a text or an image to decide about")
    if len(text) > DECISION_STATE_CHARS:
        raise REQUEST_TOO_LARGE(
            f"a state of {len(text)} characters was sent; at most {DECISION_STATE_CHARS} are allowed", param="state"
        )


def checked_images(addresses: Sequence[str]) -> tuple[str, ...]:
    """`addresses` if each is an image that may come along, else ValueError or REQUEST_TOO_LARGE."""
    if len(addresses) > DECISION_IMAGES:
        raise ValueError(f"{len(addresses)} images were sent; at most {DECISION_IMAGES} are allowed")
    for address in addresses:
        check_image(address)
    return tuple(addresses)


def check_image(address: str) -> str:
    """`address` if it is a `data:` address of an image within bounds, else ValueError or REQUEST_TOO_LARGE."""
    size = decoded_bytes(address)
    if size > DECISION_IMAGE_BYTES:
        raise REQUEST_TOO_LARGE(
            f"an image of {size} bytes was sent; at most {DECISION_IMAGE_BYTES} are allowed", param="images"
        )
    return address


def check_body(body_bytes: int, images: Sequence[str]) -> None:
    """Raises REQUEST_TOO_LARGE if a body is too long without what its images hold."""
    size = body_bytes - sum(len(address) - address.index(",") - 1 for address in images)
    if size > DECISION_BODY_BYTES:
        raise REQUEST_TOO_LARGE(
            f"the body has {size} bytes besides its images' data; at most {DECISION_BODY_BYTES} are allowed"
        )


HOLDS, FAILS = "the statement is true", "the statement is false"
"""What true and false mean where a client does not say."""


def _refuse_policy(policy: Any) -> None:
    if policy is not None:
        raise INVALID_REQUEST(
            "`policy` was sent, but a reply of this shape cannot mark an answer as withheld; "
            "send `state` and named `questions` to POST /decisions, which supports `policy`",
            param="policy",
        )


NoPolicy = Annotated[None, BeforeValidator(_refuse_policy)]
"""Ignored like other foreign fields, a policy would release what it was to withhold."""

_QUESTIONS: TypeAdapter[dict[str, Question]] = TypeAdapter(Questions)


def our_questions(translated: dict[str, dict[str, Any]]) -> dict[str, Question]:
    """Questions by name, in source order. Raises the ApiError of what our questions may not hold."""
    try:
        return _QUESTIONS.validate_python(translated)
    except ValidationError as error:
        raise explain(error) from None


def confidence(answer: Answer) -> float:
    """Probability of the chosen option among all that the model could have said."""
    return answer["max_probability"] * answer["diagnostics"]["label_mass"]
