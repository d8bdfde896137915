"""What every strategy is given, and what it gives back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from contract.decisions.engine import Reading
from contract.decisions.questions import Question

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True, slots=True)
class Asked:
    """One request.

    Attributes:
        state: the text that is judged.
        images: in RGB.
        request_id: for the engine, unlike any other.
        cache_salt: keeps the prefix caches of organisations apart.
    """

    state: str
    questions: Sequence[Question]
    images: Sequence[Image]
    request_id: str
    cache_salt: str | None


@dataclass(frozen=True, slots=True)
class Found:
    """A reading for each question, in order, and the tokens of state, images and questions, each counted once."""

    reads: tuple[Reading, ...]
    input_tokens: int


class Strategy(Protocol):
    """A way to read a model."""

    async def read(self, asked: Asked) -> Found:
        """Raises ApiError for what the client can change; anything else is the engine's fault."""
