"""A draft of a voice, from the order to the voice or to nothing: its states, and what may happen in each.

               finish   fail     expire   adopt      discard
    pending    ready    failed   failed   refused    discarded
    ready      -        -        -        adopted    discarded
    adopted    -        -        -        refused    discarded      the voice goes too
    discarded  -        -        -        refused    discarded
    failed     -        -        -        refused    discarded

`-` changes nothing: an engine may finish a draft after the organisation has discarded it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, get_args

from contract.errors import INVALID_REQUEST
from contract.voice_design.engine import DesignJob, VoiceBrief

DraftState = Literal["pending", "ready", "adopted", "discarded", "failed"]
DraftEvent = Literal["finish", "fail", "expire", "adopt", "discard"]

DRAFT_STATES: tuple[DraftState, ...] = get_args(DraftState)

TRANSITIONS: dict[DraftEvent, tuple[tuple[DraftState, ...], DraftState]] = {
    "finish": (("pending",), "ready"),
    "fail": (("pending",), "failed"),
    "expire": (("pending",), "failed"),
    "adopt": (("ready",), "adopted"),
    "discard": (DRAFT_STATES, "discarded"),
}
"""The states in which each event changes something, and the state after it."""

NOT_READY: dict[DraftState, str] = {
    "pending": "is not finished; poll it until its `status` is `ready`",
    "adopted": "has already been adopted",
    "discarded": "has been discarded",
    "failed": "has failed; order a new one",
}
"""Reason why a draft in a state cannot be adopted."""


def refuse_adoption(state: DraftState) -> None:
    """Raises INVALID_REQUEST for a draft that is not `ready`."""
    if state in NOT_READY:
        raise INVALID_REQUEST(f"this draft {NOT_READY[state]}")


@dataclass(frozen=True, slots=True)
class VoiceSpec(VoiceBrief):
    """Complete specification of an ordered voice.

    Attributes:
        label: name for people.
        slug: slug of the voice; None to derive one at adoption.
        auto_adopt: whether the voice is adopted as soon as it is ready.
    """

    label: str
    slug: str | None
    auto_adopt: bool

    def job(self, text: str, attempts: int) -> DesignJob:
        """Returns the job for the designer: `text` is the sample sentence of the language."""
        brief = {field.name: getattr(self, field.name) for field in fields(VoiceBrief)}
        return DesignJob(**brief, text=text, attempts=attempts)
