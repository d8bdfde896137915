"""What the stanza of a decision model may say: `serving.options`."""

from __future__ import annotations

from typing import Any

from pydantic import field_validator, model_validator

from contract.limits import DECISION_IMAGES
from models.decisions import strategies
from models.llm.arguments import EngineOptions

FOR_IMAGES: dict[str, Any] = {"limit_mm_per_prompt": {"image": DECISION_IMAGES}, "mm_processor_cache_gb": 0}
"""Engine arguments of a model that sees, where its stanza says nothing. No image of a client is kept."""


class Options(EngineOptions):
    """Options of `LabelScorer`.

    Attributes:
        strategy: how the model is read (`strategies.py`).
        calibrated: a temperature is fitted to the labelled examples.
        images: the model sees.
        exact: nothing else that the engine reads moves a probability (`models.llm.exact`).
    """

    strategy: str = strategies.OURS
    calibrated: bool = False
    images: bool = False
    exact: bool = False

    @field_validator("strategy")
    @classmethod
    def _exists(cls, name: str) -> str:
        if name not in strategies.NAMES:
            listed = ", ".join(f"`{one}`" for one in strategies.NAMES)
            raise ValueError(f"there is no strategy `{name}`; there are {listed}")
        return name

    @model_validator(mode="after")
    def _sees(self) -> Options:
        if self.images and self.strategy not in strategies.SEEING:
            raise ValueError(f"`images` is set, but the strategy `{self.strategy}` reads none")
        return self

    @property
    def arguments(self) -> dict[str, Any]:
        """`engine` over our own for a model that sees."""
        return FOR_IMAGES | self.engine if self.images else self.engine
