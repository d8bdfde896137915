"""What every strategy is given, and what it gives back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from contract.decisions.engine import DecisionJob, Reading

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """A job on its way to the engine.

    Attributes:
        job: what to read.
        images: those of the job, decoded to RGB.
        request_id: for the engine, unlike any other.
    """

    job: DecisionJob
    images: Sequence[Image]
    request_id: str


@dataclass(frozen=True, slots=True)
class ReadResult:
    """A reading for each question, in order, and the tokens of state, images and questions, each counted once."""

    reads: tuple[Reading, ...]
    input_tokens: int


class ReadStrategy(Protocol):
    """A way to read a model."""

    async def read(self, request: ReadRequest) -> ReadResult:
        """Raises ApiError for what the client can change; anything else is the engine's fault."""
        ...
