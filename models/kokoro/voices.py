"""A voice of Kokoro: a mixture of its styles. As JSON it is the recipe of a designed voice."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, PositiveFloat

from contract.base import Frozen
from models.espeak.voices import VoiceSettings


def _shares(weights: dict[str, float]) -> dict[str, float]:
    total = sum(weights.values())
    return {name: weight / total for name, weight in weights.items()}


Weight = Annotated[float, Field(gt=0, le=1e6)]
Mixture = Annotated[dict[str, Weight], Field(min_length=1), AfterValidator(_shares)]


class KokoroVoice(Frozen):
    """How a voice is spoken.

    Attributes:
        styles: weights of style tables by name, e.g. `af_heart`; any positive numbers, kept as shares of 1.
        speed: 1 is the network's own.
        espeak: how espeak-ng speaks the voice in languages that Kokoro does not; None for one of like height.
    """

    styles: Mixture
    speed: PositiveFloat = 1.0
    espeak: VoiceSettings | None = None
