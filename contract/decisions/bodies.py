"""POST /decisions takes two shapes of body. This says which one came."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Discriminator, RootModel, Tag

from contract.decisions.native import DecisionRequest
from contract.decisions.openai import OpenAIDecisionRequest


def _shape(data: Any) -> str:
    is_openai = isinstance(data, dict) and "input" in data and isinstance(data.get("questions"), list)
    return "in OpenAI's shape" if is_openai else "in our own"


class DecisionBody(
    RootModel[
        Annotated[
            Annotated[DecisionRequest, Tag("in our own")] | Annotated[OpenAIDecisionRequest, Tag("in OpenAI's shape")],
            Discriminator(_shape),
        ]
    ]
):
    """A body of POST /decisions: our own, or one with `input` in OpenAI's shape."""

    # Tags are no identifiers, so that no error names them.
