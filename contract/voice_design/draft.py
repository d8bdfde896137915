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

from dataclasses import dataclass
from typing import Literal, get_args

from contract.errors import INVALID_REQUEST
from contract.voice_design.engine import DesignJob

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
    "adopted": "has been adopted already",
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
class VoiceSpec:
    """All that was decided when a voice was ordered.

    Attributes:
        gender, age_years: of the voice.
        language: ISO 639-1, of its sample sentence.
        traits: axis to id of each trait, ordered or drawn.
        speed: that the traits ask for; 1 is the engine's own.
        instruct: the description, built or given.
        label: for people.
        slug: that the voice is to have, None for one that is made when it is adopted.
        target_hz, band_hz: pitch to reach, and what is accepted.
        auto_adopt: whether the voice is adopted as soon as it is ready.
        seed: of all that is drawn by chance.
    """

    gender: Literal["m", "f"]
    age_years: int
    language: str
    traits: dict[str, str]
    speed: float
    instruct: str
    label: str
    slug: str | None
    target_hz: int
    band_hz: tuple[float, float]
    auto_adopt: bool
    seed: int

    def job(self, text: str, attempts: int) -> DesignJob:
        """What the designer is asked: `text` is the sample sentence of the language."""
        return DesignJob(
            text=text,
            language=self.language,
            instruct=self.instruct,
            gender=self.gender,
            age_years=self.age_years,
            traits=self.traits,
            speed=self.speed,
            target_hz=self.target_hz,
            band_hz=self.band_hz,
            attempts=attempts,
            seed=self.seed,
        )
