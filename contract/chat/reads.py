"""What a scorer asks of a chat model whose replicas it reads through: the job and its reply. No client names either."""

from __future__ import annotations

from dataclasses import dataclass

from contract.decisions.engine import Reading
from contract.limits import DECISION_QUESTIONS

MOST_PROMPTS = 2 * DECISION_QUESTIONS
"""Of one job: every question, in both orders of its options."""


@dataclass(frozen=True, slots=True)
class LabelPrompt:
    """Token ids up to the label, and the ids of the labels in source order."""

    token_ids: list[int]
    label_ids: list[int]


@dataclass(frozen=True, slots=True)
class ReadJob:
    """Prompts to read. Without any, the reply only says what runs there.

    Attributes:
        owner: for whom; owners take turns, and share no prefix cache.
    """

    prompts: tuple[LabelPrompt, ...] = ()
    owner: str = ""


@dataclass(frozen=True, slots=True)
class ReadReply:
    """A reading for each prompt, in order, and who read.

    Attributes:
        runtime: fingerprint of weights, engine arguments, precision and vLLM: a measurement stands for one of them.
        block_tokens: block of the engine's prefix cache.
    """

    reads: tuple[Reading, ...]
    runtime: str
    block_tokens: int
