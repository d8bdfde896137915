"""What every model replica has in common. Rules live in `contract`, computing in `models`; a replica holds both."""

from __future__ import annotations

import logging
import os
import time
from typing import Any, Generic, TypeVar

from autoscaling.ray_internals.replica import keep_replica_port_local
from contract.catalog import Model

log = logging.getLogger(f"parlance.{__name__}")

E = TypeVar("E")

OF_THE_INGRESS = (
    "PARLANCE_SECRET",
    "PARLANCE_DATABASE_URL",
    "PARLANCE_REDIS_URL",
    "PARLANCE_BLOBS_URL",
)
"""Variables that Ray hands to every process and no engine needs. It runs models of others, and may start processes."""

OF_THE_STORE = "AWS_"
"""So begin those by which the store of bytes finds credentials: keys, files with tokens, addresses that give some."""


class Replica(Generic[E]):
    """Loads the adapter that the model's stanza names: an engine `E`, a protocol of the contract.

    The constructor blocks until the model can answer, so that a running replica is a warm one.
    """

    def __init__(self, model: Model) -> None:
        import models

        for name in list(os.environ):
            if name in OF_THE_INGRESS or name.startswith(OF_THE_STORE):
                del os.environ[name]
        keep_replica_port_local()
        started = time.perf_counter()
        self._adapter: Any = models.load(model)
        self.load_s = time.perf_counter() - started
        log.info("loaded %s in %.1f s", model.id, self.load_s)

    @property
    def engine(self) -> E:
        """The adapter as what its capability says of it."""
        engine: E = self._adapter
        return engine

    async def warm(self) -> float:
        """Does nothing but exist: a queued call wakes an engine at zero. Returns the seconds that loading took."""
        return self.load_s

    async def check_health(self) -> None:
        """Called by Serve; raises when the engine is dead or makes no progress."""
        await self._adapter.check_health()

    def __del__(self) -> None:
        if adapter := getattr(self, "_adapter", None):
            adapter.close()
