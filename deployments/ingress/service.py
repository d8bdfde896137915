"""What one ingress process works with. Tests build it with engines that run without Ray."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from autoscaling.engine import Engine
from contract.catalog import Catalog, Model, SpeechModel
from contract.decisions.engine import Measurement
from contract.speech.voices import VoiceAlias
from deployments.ingress.front.concurrency import Budgets
from deployments.ingress.draft_worker import Drafting
from deployments.ingress.front.proxies import Proxies
from state import State
from state.accounts.cache import TtlCache

PLAYED_SAMPLES = 256
"""Samples of voices in memory, of some 50 KB each."""
PLAYED_S = 3600
"""How long they are."""
LEFT_S = 86_400.0
"""For so long the whole answers of an organisation are counted while they are made."""
MAX_LEAVERS = 10_000


@dataclass(frozen=True)
class Service:
    """Catalogue, engines by deployment name, and state.

    Attributes:
        header_prefix: of the service's own reply headers.
        public_url: at which clients reach this server, without a slash at its end; None: as each request says.
        proxies: whose word on where a request comes from is taken.
        allowed_origins: of web pages that may call, `*` for all; empty: none but those of this server.
        voice_aliases: other names that requests may use for voices.
        measurements: the last one that each decision model reported.
        budgets: what requests hold in this process.
        played: samples of fixed voices, by their names in the store. They are everybody's.
        leavers: ids of organisations whose clients have left a whole answer lately.
    """

    catalog: Catalog
    engines: Mapping[str, Engine]
    state: State
    header_prefix: str = "x-service-"
    public_url: str | None = None
    proxies: Proxies = field(default_factory=Proxies)
    allowed_origins: frozenset[str] = frozenset()
    voice_aliases: Mapping[str, VoiceAlias] = field(default_factory=dict)
    measurements: dict[str, Measurement] = field(default_factory=dict)
    budgets: Budgets = field(default_factory=Budgets)
    played: TtlCache[str, bytes] = field(default_factory=lambda: TtlCache(PLAYED_SAMPLES, PLAYED_S))
    leavers: TtlCache[int, bool] = field(default_factory=lambda: TtlCache(MAX_LEAVERS, LEFT_S))

    @cached_property
    def drafting(self) -> Drafting:
        """The work on drafts of voices in this process."""
        return Drafting(self.catalog, self.engines, self.state)

    @cached_property
    def speech_engines(self) -> Mapping[str, SpeechModel]:
        """Every speech engine that the catalogue knows, set up or not, by its name on the wire."""
        return {model.provider: model for model in self.catalog.speech.values()}

    @cached_property
    def spoken_languages(self) -> frozenset[str]:
        """ISO 639-1 codes of every language that at least one of them speaks."""
        return self.catalog.spoken_languages

    def engine(self, model: Model) -> Engine:
        """The engine that runs `model`."""
        return self.engines[model.deployment]
