"""What the wires of other APIs share: their questions as ours, and one number that both of them call confidence."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter, ValidationError

from contract.body import explain
from contract.decisions.answers import Answer
from contract.decisions.questions import Question, Questions

HOLDS, FAILS = "the statement is true", "the statement is false"
"""What true and false mean where a client does not say."""

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
