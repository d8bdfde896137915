"""What the wires of other APIs share: questions as ours, one number that both call confidence, no policy."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, TypeAdapter, ValidationError

from contract.body import explain
from contract.decisions.answers import Answer
from contract.decisions.questions import Question, Questions
from contract.errors import INVALID_REQUEST

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
