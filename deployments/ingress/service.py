"""What one ingress process works with. Tests build it with engines that run without Ray."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autoscaling.engine import Engine
from contract.catalog import Catalog, Model, SpeechModel
from contract.decisions.engine import Measurement
from state import State


@dataclass(frozen=True, slots=True)
class Service:
    """Catalogue, engines by deployment name, and state.

    Attributes:
        header_prefix: of the service's own reply headers.
        measurements: the last one that each decision model reported.
    """

    catalog: Catalog
    engines: Mapping[str, Engine]
    state: State
    header_prefix: str = "x-service-"
    measurements: dict[str, Measurement] = field(default_factory=dict)

    @property
    def speech_engines(self) -> Mapping[str, SpeechModel]:
        """Every speech engine that the catalogue knows, set up or not, by its name on the wire."""
        return {model.provider: model for model in self.catalog.speech.values()}

    def engine(self, model: Model) -> Engine:
        """The engine that runs `model`."""
        return self.engines[model.deployment]
