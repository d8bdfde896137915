"""What routes work with. One per ingress process; tests build it with engines that run without Ray."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from autoscaling.gate import Engine
from contract.access import Caller
from contract.catalog import Catalog, Model, SpeechModel
from contract.decisions.engine import Measurement
from contract.errors import MODEL_NOT_FOUND
from state import State

M = TypeVar("M", bound=Model)


@dataclass(frozen=True, slots=True)
class Service:
    """Catalogue, engines by deployment name, and state.

    Attributes:
        header_prefix: of the service's own reply headers.
        measurements: what each decision model last said of itself.
    """

    catalog: Catalog
    engines: Mapping[str, Engine]
    state: State
    header_prefix: str = "x-service-"
    measurements: dict[str, Measurement] = field(default_factory=dict)

    def offered(self, models: Mapping[str, M], caller: Caller) -> list[M]:
        """Those of `models` that are set up here and enabled for the caller's organisation."""
        return [model for model in models.values() if model.serving and caller.may_use(model.id)]

    def pick(self, models: Mapping[str, M], model_id: str | None, caller: Caller) -> M:
        """The model that a request names, or the first one where it may name none. Raises MODEL_NOT_FOUND.

        Unknown, not set up, and not enabled look the same from outside.
        """
        offered = self.offered(models, caller)
        for model in offered:
            if model_id is None or model.id == model_id:
                return model
        names = ", ".join(f"`{model.id}`" for model in offered) or "none"
        asked = f"there is no model `{model_id[:100]}` here" if model_id else "no such model is set up here"
        raise MODEL_NOT_FOUND(f"{asked}; your organisation can use: {names}", param="model")

    @property
    def speech_engines(self) -> Mapping[str, SpeechModel]:
        """Every speech engine that the catalogue knows, set up or not, by its name on the wire."""
        return {model.provider: model for model in self.catalog.speech.values()}

    def engine(self, model: Model) -> Engine:
        """The engine that runs `model`."""
        return self.engines[model.deployment]
