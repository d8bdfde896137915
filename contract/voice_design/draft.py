"""A draft of a voice, from the order to the voice or to nothing: its states, and what may happen in each.

               finish   fail     expire   adopt      discard
    pending    ready    failed   failed   refused    discarded
    ready      -        -        -        adopted    discarded
    adopted    -        -        -        refused    discarded      the voice goes too
    discarded  -        -        -        refused    discarded
    failed     -        -        -        refused    discarded

`-` changes nothing: an engine may be done with what somebody discarded meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, get_args

from contract.errors import INVALID_REQUEST
from contract.voice_design.engine import DesignJob, VoiceBrief

DraftState = Literal["pending", "ready", "adopted", "discarded", "failed"]
DraftEvent = Literal["finish", "fail", "expire", "adopt", "discard"]

DRAFT_STATES: tuple[DraftState, ...] = get_args(DraftState)

TRANSITIONS: dict[tuple[DraftState, DraftEvent], DraftState] = {
    ("pending", "finish"): "ready",
    ("pending", "fail"): "failed",
    ("pending", "expire"): "failed",
    ("ready", "adopt"): "adopted",
    **{(state, "discard"): "discarded" for state in DRAFT_STATES},
}
"""Every change that there is."""

NOT_READY: dict[DraftState, str] = {
    "pending": "is not finished; poll it until its `status` is `ready`",
    "adopted": "has already been adopted",
    "discarded": "has been discarded",
    "failed": "has failed; order a new one",
}
"""Why a draft in a state cannot be adopted."""


def sources(event: DraftEvent) -> tuple[DraftState, ...]:
    """The states in which `event` changes something."""
    return tuple(state for state in DRAFT_STATES if (state, event) in TRANSITIONS)


def refuse_adoption(state: DraftState) -> None:
    """Raises INVALID_REQUEST for a draft that is not `ready`."""
    if state in NOT_READY:
        raise INVALID_REQUEST(f"this draft {NOT_READY[state]}")


@dataclass(frozen=True, slots=True)
class VoiceSpec(VoiceBrief):
    """All that was decided when a voice was ordered.

    Attributes:
        label: for people.
        slug: that the voice is to have, None for one that is made when it is adopted.
        auto_adopt: whether the voice is adopted as soon as it is ready.
    """

    label: str
    slug: str | None
    auto_adopt: bool

    def job(self, text: str, attempts: int) -> DesignJob:
        """What the designer is asked: `text` is the sample sentence of the language."""
        brief = {field.name: getattr(self, field.name) for field in fields(VoiceBrief)}
        return DesignJob(**brief, text=text, attempts=attempts)
