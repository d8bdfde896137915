"""Result of a decision, and checks of its input, for all wires.

    a body -> DecisionWire.native() -> DecisionRequest -> the flow -> DecisionResult -> DecisionWire.render() -> a reply

The wires are `native` (POST /decisions), `openai` (POST /decisions with `input`) and `systemone` (POST /systemone).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator

from contract.catalog import DecisionModel, Operator
from contract.decisions.answers import Answer
from contract.decisions.engine import Readings
from contract.decisions.questions import Preset, Question
from contract.errors import INVALID_REQUEST, REQUEST_TOO_LARGE
from contract.images import decoded_bytes
from contract.limits import (
    DECISION_BODY_BYTES,
    DECISION_IMAGE_BYTES,
    DECISION_IMAGES,
    DECISION_STATE_CHARS,
    JSON_ESCAPES,
)

MAX_BODY_BYTES = DECISION_BODY_BYTES + DECISION_IMAGES * -(-DECISION_IMAGE_BYTES // 3) * 4 + JSON_ESCAPES
"""Most bytes of a valid body, images and escapes of slashes in them included."""


@dataclass(frozen=True, slots=True)
class DecisionResult:
    """Result of a decision.

    Attributes:
        id: `dec_...`.
        created: Unix time.
        operator: operator of the service that ran the model.
        preset: pack that the questions come from.
        readings: readings of the engine, before those of both orders are merged.
        total_s: seconds since the request arrived.
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


def check_state(text: str) -> None:
    """Raises ValueError if the state is empty, and REQUEST_TOO_LARGE if it is too long."""
    if not text.strip():
        raise ValueError("the state is empty; send a text or an image to decide about")
    if len(text) > DECISION_STATE_CHARS:
        raise REQUEST_TOO_LARGE(
            f"a state of {len(text)} characters was sent; at most {DECISION_STATE_CHARS} are allowed", param="state"
        )


def check_image(address: str) -> str:
    """Returns `address` if it holds an image within bounds. Raises ValueError or REQUEST_TOO_LARGE."""
    size = decoded_bytes(address)
    if size > DECISION_IMAGE_BYTES:
        raise REQUEST_TOO_LARGE(
            f"an image of {size} bytes was sent; at most {DECISION_IMAGE_BYTES} are allowed", param="images"
        )
    return address


def check_body(body_bytes: int, images: Sequence[str]) -> None:
    """Raises REQUEST_TOO_LARGE if a body is too long without the data of its images."""
    size = body_bytes - sum(len(address) - address.index(",") - 1 for address in images)
    if size > DECISION_BODY_BYTES:
        raise REQUEST_TOO_LARGE(
            f"the body has {size} bytes besides its images' data; at most {DECISION_BODY_BYTES} are allowed"
        )


HOLDS, FAILS = "the statement is true", "the statement is false"
"""Default meanings of true and false."""


def _refuse_policy(policy: Any) -> None:
    if policy is not None:
        raise INVALID_REQUEST(
            "`policy` was sent, but a reply of this shape cannot mark an answer as withheld; "
            "send `state` and named `questions` to POST /decisions, which supports `policy`",
            param="policy",
        )


NoPolicy = Annotated[None, BeforeValidator(_refuse_policy)]
"""Field that refuses a policy. If it were ignored, answers that the policy withholds would be released."""


def confidence(answer: Answer) -> float:
    """Returns the probability of the chosen option among all possible outputs of the model."""
    return answer["max_probability"] * answer["diagnostics"]["label_mass"]
